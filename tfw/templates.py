"""Source templates of the functions that users call; `tfw.fastpath` fills them in and compiles.

Every function has this shape: test for the common case by comparing interned kinds, call the NumPy
rule, wrap the result, record a node if a tracked tensor and the gradient mode ask for it; anything
else, and whatever the rule refuses, goes to `slow`.
"""

from __future__ import annotations

HEAD = """
def make(op, rule, fast, slow, view_op, needs, large):
    def call({signature}):
"""

OUT = """
        if out is not None:
            return dispatch_out(op, ({args}), out)
"""

TAIL = """
        return slow(op, ({args}))
    return call
"""

UNARY = """
        try:
            if _dispatch.intercept is None{guard}:
                kind = fast[{x}._kind]
                value = state.run({rule}, {x}._a{rule_attrs})
                if value.__class__ is not ndarray:
                    value = asarray(value)
                    kind = kind.scalar
                out = new(Tensor)
                out._a = value
                out._kind = kind
                if {x}._node is not None and state.grad_enabled:
                    record_unary(op, out, {x}, ({attrs}))
                return out
        except RECOVERABLE:
            pass
"""

BINARY = """
        try:
            if _dispatch.intercept is None{guard}:
                kind = {x}._kind
                result_kind = fast[kind]
                type_ = {y}.__class__
                if type_ is float or type_ is int:
                    value = state.run({rule}, {x}._a, number(kind, {y}){rule_attrs})
                    node = {x}._node
                elif {y}._kind is kind:
                    value = state.run({rule}, {x}._a, {y}._a{rule_attrs})
                    node = {x}._node or {y}._node
                else:
                    return any_layout(op, rule, fast, slow, ({args}))
                out = new(Tensor)
                out._a = value
                out._kind = result_kind
                if node is not None and state.grad_enabled:
                    record_binary(op, out, {x}, {y}, ({attrs}))
                return out
        except RECOVERABLE:
            pass
        return any_layout(op, rule, fast, slow, ({args}))
"""

VIEW = """
        try:
            if _dispatch.intercept is None{guard}:
                kind = fast[{x}._kind]
                value = rule({x}._a{rule_attrs})
                out = new(Tensor)
                out._a = value
                if not value.flags.c_contiguous:
                    kind = kind.strided
                elif not value.ndim:
                    kind = kind.scalar
                out._kind = kind
                cell = {x}._cell
                if cell is None:
                    cell = {x}._cell = [0]
                out._cell = cell
                out._node = new_view(
                    View, ({x}, view_op, ({attrs}), -1, cell[0], None, state.grad_enabled)
                )
                return out
        except RECOVERABLE:
            pass
"""

INPLACE_UNARY = """
        try:
            if (
                _dispatch.intercept is None{guard}
                and {x}._node is None
                and fast[{x}._kind] is {x}._kind
            ):
                state.run({rule}, {x}._a{rule_attrs}, {x}._a)
                cell = cell_of({x})
                cell[0] += 1
                return {x}
        except RECOVERABLE:
            pass
"""

INPLACE_BINARY = """
        try:
            if _dispatch.intercept is None{guard} and {x}._node is None:
                kind = {x}._kind
                if fast[kind] is kind:
                    type_ = {y}.__class__
                    if type_ is float or type_ is int:
                        value = number(kind, {y})
                    elif {y}._kind is kind and {y}._node is None:
                        value = {y}._a
                    else:
                        return inplace_recorded(op, rule, fast, slow, ({args}))
                    state.run({rule}, {x}._a, value{rule_attrs}, {x}._a)
                    cell = cell_of({x})
                    cell[0] += 1
                    return {x}
        except RECOVERABLE:
            pass
        return inplace_recorded(op, rule, fast, slow, ({args}))
"""

LIST = """
        try:
            if _dispatch.intercept is None{guard}:
                kind = {x}[0]._kind
                result_kind = fast[kind]
                arrays = []
                node = None
                for x in {x}:
                    if x._kind is not kind:
                        return slow(op, ({args}))
                    arrays.append(x._a)
                    node = node or x._node
                out = new(Tensor)
                out._a = state.run(rule, arrays{rule_attrs})
                out._kind = result_kind
                if node is not None and state.grad_enabled:
                    record_any(op, (out,), {x}, ({attrs}))
                return out
        except RECOVERABLE:
            pass
"""

DIRECT = """
        try:
            if _dispatch.intercept is None{guard}:
                kind = {x}._kind{dense}
                kinds = fast[kind]
                node = None
{checks}
                value = state.run(rule, {payloads}{rule_attrs})
{wraps}
                if node is not None and state.grad_enabled:
                    record_any(op, ({outs}), ({tensors}), ({attrs}))
                return {returned}
        except RECOVERABLE:
            pass
"""

# Parts of DIRECT: one check per tensor, one wrap per output.
CHECK = """
                if {x}._kind{dense} is not {kind}:
                    return slow(op, ({args}))
                {x}_a = {x}._a
                node = node or {x}._node
"""

CHECK_OPTIONAL = """
                {x}_a = None
                if {x} is not None:
                    if {x}._kind{dense} is not {kind}:
                        return slow(op, ({args}))
                    {x}_a = {x}._a
                    node = node or {x}._node
"""

CHECK_NUMBER = """
                type_ = {x}.__class__
                if type_ is float or type_ is int:
                    {x}_a = number({kind}, {x})
                else:
                    if {x}._kind{dense} is not {kind}:
                        return slow(op, ({args}))
                    {x}_a = {x}._a
                    node = node or {x}._node
"""

WRAP = """
                v{k} = {value}
                kind = kinds[{k}]
                if v{k}.__class__ is not ndarray:
                    v{k} = asarray(v{k})
                if not v{k}.ndim:
                    kind = kind.scalar
                elif not v{k}.flags.c_contiguous:
                    kind = kind.strided
                out{k} = new(Tensor)
                out{k}._a = v{k}
                out{k}._kind = kind
"""

BODIES = {
    "": "",
    "unary": UNARY,
    "binary": BINARY,
    "view": VIEW,
    "inplace_unary": INPLACE_UNARY,
    "inplace_binary": INPLACE_BINARY,
    "list": LIST,
}
