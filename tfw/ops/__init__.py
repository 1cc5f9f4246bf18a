"""What is computed: each op's signature, rules, definition, gradient, samples and bad inputs."""
