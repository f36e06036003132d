"""The instructions that programs are made of: one line of Python each, with places to be filled in by ``writer.py``.

``{x}`` is a tensor, ``{y}`` one that broadcasts to its shape, ``{z}`` one of the same shape, ``{f}`` and ``{g}`` floats, ``{r}``
one that requires a gradient and ``{l}`` a leaf that has one, ``{n}`` a tensor of ints or bools, ``{c}`` a complex one; ``{d}`` and
``{e}`` are dimensions of the first tensor and ``{i}`` an index along ``{d}``; ``{k}`` is a Python number, ``{key}`` what stands
between brackets, ``{shape}`` a shape with as many elements, ``{size}`` a new shape, ``{dtype}`` a dtype, ``{first}`` where the
values of a new tensor begin, and ``{new}`` the name of the result.
"""

FACTORIES = (
    "make({size}, {dtype}, {first}, device)",
    "make({size}, torch.float32, {first}, device).requires_grad_()",
    "make({size}, torch.float32, {first}, device).requires_grad_()",
    "make({size}, torch.float32, {first}, device).requires_grad_()",
    "make({size}, torch.float32, {first}, device)",
    "make({size}, torch.int64, {first}, device)",
    "make((), {dtype}, {first}, device)",
)
VIEWS = (
    "{x}[{key}]", "{x}[{key}]", "{x}.transpose({d}, {e})", "{x}.select({d}, {i})", "{x}.expand(2, *{x}.shape)",
    "{x}.unsqueeze({d})", "{x}.squeeze()", "{x}.squeeze({d})", "{x}.reshape({shape})", "{x}.view({shape})", "{x}.flatten()",
    "{x}.unfold({d}, 2, 1)", "{x}.unfold({d}, 2, 2)", "{x}.diagonal({i})", "{x}.narrow({d}, {i}, 1)", "{x}.movedim({d}, {e})",
    "{x}.as_strided((2, 2), (1, 1))", "{x}.as_strided((2, 2), (2, 1))", "{x}.as_strided((2,), (2,), 1)", "{x}.mT", "{x}.T",
    "{x}.chunk(2, {d})[-1]", "{x}.split(1, {d})[0]", "{x}.unbind({d})[-1]", "{x}.tensor_split(2, {d})[0]", "{x}.view_as({z})",
    "{c}.real", "{c}.imag", "{c}.conj()", "torch.view_as_real({c})", "{c}.conj().imag", "{x}.detach()", "{x}.data",
    "{n}.view(torch.uint8)", "{n}.view(torch.int16)", "{n}.view(torch.int64)", "{c}.view(torch.float32)", "{x}.view({x}.dtype)",
    "{x}.permute(*range({x}.dim() - 1, -1, -1))", "{x}.contiguous()", "{x}.to({x}.dtype)", "{x}.expand_as({x})",
    "torch.broadcast_tensors({x}, {y})[1]", "{x}.unflatten({d}, (1, -1))", "{x}.swapaxes({d}, {e})", "{x}.resolve_conj()",
)
VALUES = (
    "{x} + {y}", "{x} - {y}", "{x} * {y}", "{x} + {k}", "{k} - {x}", "{x} * {k}", "-{f}", "{x}.clone()", "{x}.neg()",
    "torch.add({x}, {y}, alpha=2)", "{x}.to({dtype})", "{x}.to({dtype})", "{x}.flip({d})", "{x}.roll(1, {d})", "{x}.sum()",
    "{x}.sum({d})", "{x}.sum({d}, keepdim=True)", "{x}.cumsum({d})", "torch.cat([{x}, {z}], {d})", "torch.stack([{x}, {z}], {d})",
    "torch.cat([{x}.flatten(), {y}.flatten()])", "{x}.repeat(2, *[1] * {x}.dim())", "{x}.repeat_interleave(2, {d})",
    "torch.zeros_like({x})", "torch.ones_like({x})", "torch.full_like({x}, {k})", "{x}.new_zeros({size})",
    "{x}.new_full((2,), {k})",
    "torch.arange({i}, 4, device=device)", "torch.eye(2, device=device)", "torch.tensor({k}, device=device)",
    "torch.full({size}, {k}, device=device)", "torch.zeros({size}, dtype={dtype}, device=device)", "copy.deepcopy({x})",
    "{x}.to('cpu', copy=True).to(device)", "{x}.cpu().clone().to(device)", "torch.empty_like({x}).copy_({y})",
    "{x} @ {z}.mT", "torch.matmul({x}, {y})", "torch.mm({f}, {g})", "{f}.flatten() @ {f}.flatten()", "torch.outer({x}, {z})",
    "torch.einsum('...i,...i->...', {x}, {z})", "{x}.index_select({d}, torch.tensor([0, {i}], device=device))",
    "{x}[torch.tensor([0, {i}], device=device)]", "{x}.gather({d}, torch.zeros_like({x}, dtype=torch.int64))", "{x}.tril()",
    "{x}.diag_embed()", "torch.nn.functional.pad({x}, (1, 0))", "{x}.masked_fill({n} > 0, {k})", "torch.where({n} > 0, {x}, {k})",
    "{x}.index_fill({d}, torch.tensor([{i}], device=device), {k})", "torch.complex({f}.float(), {f}.float())", "{x}.prod()",
    "{x}.type_as({y})",
    "{x}.scatter_add({d}, torch.zeros_like({x}, dtype=torch.int64), {x})", "{n} & {n}", "{n} ^ 1", "~{n}", "{n} // 2", "{n} % 3",
    "{x}.square()", "torch.addcmul({x}, {y}, {y}, value=2)", "torch.add({x}, {y}, out=torch.empty_like({x}))", "{x}.double()",
    "{x}.slice_scatter({x}[:1] * 2, 0, 0, 1)", "{x}.select_scatter({x}.select({d}, 0), {d}, {i})", "{x}.conj_physical()",
    "torch.linspace(0, 4, 5, device=device)", "{x}.contiguous(memory_format=torch.preserve_format).clone()", "{x}.trace()",
    "{n} << 1", "{n} >> 1", "torch.nn.functional.one_hot({n}.long() & 3, 4)", "torch.kron({x}, {y})", "{x}.unsqueeze(0).bmm({z})",
)
DISCRETE = (  # of floats: what a last digit may turn over, so that the argument has to be exact
    "{x} > {y}", "{x} == {y}", "{x} != {k}", "{x}.remainder(3)", "{x}.relu()", "{x}.abs()", "{x}.sign()", "{x}.clamp(-1, 2)",
    "torch.maximum({x}, {y})", "torch.minimum({x}, {y})", "{x}.amax({d})", "{x}.argmax({d})", "{x}.max({d})[0]", "{x}.min()",
    "{x}.sort({d}, stable=True)[0]", "{x}.sort({d}, stable=True)[1]", "{x}.any()", "{x}.all({d})", "torch.where({x} > 0, {x}, {y})",
    "{x}.masked_fill({x} > 0, {k})", "{x}.floor()", "{x}.bool()", "{x}.to(torch.int32)", "{x}[{x} > 0]", "{x}.nonzero()",
    "{x} * int({y}.sum().item())", "{x}.masked_select({x} != 0)", "torch.tensor({x}.tolist(), device=device)",
    "{x}.count_nonzero()",
    "torch.unique({x})", "{x}.view(torch.int32).clone()", "{x}.isin({y})", "{x}.topk(1, {d})[0]", "{x}.cummax({d})[0]",
    "torch.floor_divide({x}, 2)", "{x}.logical_not()", "torch.nn.functional.relu({f})", "{x}.long()", "{x}.fmod(2)",
)
INEXACT = (
    "{f}.tanh()", "{f}.sigmoid()", "{f}.softmax({d})", "{f} / ({g}.abs() + 1)", "{x} / 3", "{f}.mean()", "{f}.mean({d})",
    "{f}.tanh() * 0.3", "{x} * 0.1", "{f}.exp().log1p()", "torch.nn.functional.gelu({f})", "torch.nn.functional.silu({f})",
    "{f}.logsumexp({d})", "(1 + {f} * {f}).rsqrt()", "(1 + {f} * {f}).sqrt()", "{f}.sin()", "{f}.var({d})", "{f}.log_softmax({d})",
    "torch.lerp({f}, {f}.tanh(), 0.3)", "torch.nn.functional.layer_norm({f}, {f}.shape[-1:])", "{x} / {k}", "{f}.std()",
    "torch.utils.checkpoint.checkpoint(torch.sigmoid, {f}, use_reentrant=False)", "{f}.expm1()", "torch.true_divide({n}, 7)",
    "torch.nn.functional.linear({f}, {g})", "{x} + 0.1", "torch.addcdiv({f}, {f}, {f}.abs() + 1)", "{x}.pow(2.0) / 9",
)
WRITES = (
    "{x}.add_({y})", "{x}.add_({k})", "{x}.sub_({y})", "{x}.mul_({y})", "{x}.mul_({k})", "{x}.copy_({y})", "{x}.copy_({y})",
    "{x}[{key}] = {k}", "{x}[{key}] = {y}", "{x}[{key}] += 1", "{x}[{key}] = {x}.flatten()[:1].clone()", "{x}.neg_()",
    "{x}.masked_fill_({n} > 0, {k})", "{x}.masked_fill_({x} > 0, {k})", "{x}[{x} > 0] = {k}", "{x} += {y}", "{x} *= {k}",
    "{x}.index_put_((torch.tensor([0, {i}], device=device),), {x}[:1].clone(), accumulate=True)", "{x}.t_()",
    "{x}.scatter_add_({d}, torch.zeros_like({x}, dtype=torch.int64), {x}.clone())", "{x}.scatter_({d}, {z}.long() * 0, {k})",
    "{x}.index_add_({d}, torch.tensor([{i}], device=device), {x}.narrow({d}, 0, 1).clone())", "{x}.transpose_({d}, {e})",
    "{x}.index_fill_({d}, torch.tensor([{i}], device=device), {k})",
    "{x}.index_copy_(0, torch.tensor([0], device=device), {x}[:1] + 1)",
    "{x}.unsqueeze_({d})", "{x}.squeeze_()", "{x}.swapdims_({d}, {e})", "{x}.data.add_(1)", "{x}.detach().mul_(2)", "{x}.tril_()",
    "torch.add({y}, 1, out={x})", "torch.sum({y}, 0, out={x})", "torch.cat([{y}.flatten(), {y}.flatten()], out={x})",
    "torch._foreach_add_([{x}, {z}], 1)", "torch._foreach_mul_([{x}], [{y}])", "{x}.clamp_(-1, 2)", "{x}.remainder_(3)",
    "{n}.bitwise_xor_(1)",
    "{x}.masked_scatter_({n} > 0, {x}.flatten().repeat(8))", "{x}.addcmul_({y}, {y}, value=2)", "{x}.cumsum_({d})", "{x}.abs_()",
    "{x}.put_(torch.tensor([0, -1], device=device), {x}.flatten()[:1].repeat(2))", "{x}.as_strided_((2,), (1,), 1)",
    "{x}.square_()",
    "{x}.resize_(2, 2).fill_({k})", "{x}.set_({z}.detach())", "{x}.data = {x}.data * 2", "{x}.logical_not_()", "{x}.eq_({y})",
    "{x}.diagonal().fill_({k})",
)
UNIFORM_WRITES = (  # every element gets the same, so that overlaps do not matter
    "{x}.fill_({k})", "{x}.zero_()", "{x}[{key}].fill_({k})", "{x}.view(-1)[::2].zero_()",
    "{x}.expand(2, *{x}.shape)[0].fill_({k})",
)
AUTOGRAD = (
    "{r}.sum().backward()", "{r}.sum().backward(retain_graph=True)", "({r} * {g}).sum().backward()", "{f}.requires_grad_()",
    "{r}.backward(torch.ones_like({r}))", "({r} * {r}.detach()).sum().backward()", "{r}.register_hook(lambda grad: grad * 2)",
    "{r}.retain_grad()", "{l}.grad = None", "{l}.grad.zero_()", "{new} = {l}.grad", "{f}.detach_()", "{l}.grad.add_(1)",
    "with torch.no_grad():\n    {f}.mul_({k})", "with torch.no_grad():\n    {l}.sub_({l}.grad)", "{new} = Double.apply({f})",
    "with torch.no_grad():\n    {f}.copy_({g})", "with torch.no_grad():\n    {new} = {f}[{key}]", "{new} = Cube.apply({f})",
    "{new} = DoubleInPlace.apply({f})", "{new}, = torch.autograd.grad({r}.sum(), {r}, allow_unused=True, retain_graph=True)",
    "{new}, = torch.autograd.grad(({r} * {r}).sum(), {r}, create_graph=True)", "{f}.requires_grad_(False)",
    "torch.optim.SGD([{l}], lr=1.0).step()", "torch.optim.SGD([{l}, {g}], lr=0.5, momentum=0.5).step()",
    "with torch.autograd.graph.save_on_cpu():\n    {new} = {f} * {g}", "{new} = torch.nn.Parameter({f}.detach())",
    "with torch.enable_grad():\n    {new} = {f} * {k}", "{new} = {f}.detach().clone().requires_grad_()",
    "{f}.grad = {f}.detach().clone()",
)
HOST = (
    "del {x}", "if bool(({n} > 0).any()):\n    {x}.add_(1)\nelse:\n    {x}.mul_(2)", "{new} = {x} + int({n}.sum().item() % 3)",
    "for row in {x}:\n    row.add_(1)", "{new} = [{x} + 1, {x} * 2][-1]", "{new} = {x}\n{x} = {new} * 1", "{x}.tolist()",
    "str({x})",
    "while {n}.sum() > 2:\n    {n}.sub_(1)", "{new} = {x} * 2 + 1\n{new} = {new} - {x}", "{new}, {new}b = {x}.clone().chunk(2)",
    "{new} = torch.stack([row * 2 for row in {x}])", "torch.equal({x}, {x})", "{x} = {x}.clone()", "{x} = {x} + {y}",
)
