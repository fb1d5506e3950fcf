"""The fixed part of program.py: imports, the device that it runs on, and the helpers that it calls.

An exported program has the imports, the tables of its plan, `Here`, and those of the functions that it calls.
Source: torch.ops._c10d_functional of PyTorch 2.8 to 2.13, whose work begins when it is called and ends at wait_tensor;
on gloo every call is waited for at once (docs/upstream/gloo-functional-all-gather.md).
"""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

aten = torch.ops.aten
c10d = torch.ops._c10d_functional

# An exported program has the tables of its plan here.
MESH_NAMES: "tuple[str, ...]" = ()
MESH_SIZES: "tuple[int, ...]" = ()
GROUPS: "tuple[str, ...]" = ()


class Here:
    """One device: its place in the mesh, the groups that it communicates in, and where its tensors are.

    The device mesh must have the sizes and the order of the plan's; it may have no names. Groups over several mesh dims are
    made here, so all ranks make this object at the same time.
    """

    def __init__(self, mesh: DeviceMesh, device: "torch.device | None" = None) -> None:
        sizes = tuple(mesh.mesh.shape)
        names = tuple(mesh.mesh_dim_names or ())
        if sizes != MESH_SIZES or (names and names != MESH_NAMES):
            planned = ", ".join(f"{n}={s}" for n, s in zip(MESH_NAMES, MESH_SIZES))
            given = ", ".join(f"{n}={s}" for n, s in zip(names, sizes)) if names else f"sizes {sizes}"
            raise ValueError(f"the plan is for the mesh ({planned}), the device mesh is ({given})")
        coordinate = mesh.get_coordinate()
        if coordinate is None:
            raise ValueError(f"rank {dist.get_rank()} is not in the device mesh")
        self.mesh = mesh
        self.coordinate = list(coordinate)
        self.rank = 0
        for place, size in zip(coordinate, sizes):
            self.rank = self.rank * size + place
        if device is None:
            kind = mesh.device_type
            device = torch.device("cpu") if kind == "cpu" else torch.device(kind, torch.accelerator.current_device_index())
        self.device = device
        self.groups: "dict[str, str]" = {}
        self.sizes: "dict[str, int]" = {}
        self.places: "dict[str, int]" = {}
        #: gloo has no averages, and its functional gathers corrupt memory where several are under way at once.
        self.on_gloo = False
        for group in GROUPS:
            dims = [MESH_NAMES.index(name) for name in group.split(",")]
            own = mesh.get_group(dims[0]) if len(dims) == 1 else self._group_over(dims)
            at = tuple(slice(None) if d in dims else c for d, c in enumerate(self.coordinate))
            wanted = mesh.mesh[at].flatten().tolist()
            members = dist.get_process_group_ranks(own)
            if members != wanted:
                raise ValueError(
                    f"the group over {group} has ranks {members}, the order of the mesh is {wanted}: "
                    "make the device mesh with init_device_mesh, whose ranks ascend"
                )
            self.groups[group] = own.group_name
            self.sizes[group] = len(members)
            self.places[group] = members.index(dist.get_rank())
            self.on_gloo = self.on_gloo or f"{self.device.type}:gloo" in dist.get_backend_config(own)

    def _group_over(self, dims: "list[int]") -> "dist.ProcessGroup":
        """The group of this device over several mesh dims; one call makes those of all devices."""
        others = [d for d in range(len(MESH_SIZES)) if d not in dims]
        members = 1
        for d in dims:
            members *= MESH_SIZES[d]
        own, _ = dist.new_subgroups_by_enumeration(self.mesh.mesh.permute(*others, *dims).reshape(-1, members).tolist())
        return own


def wait(x):
    """The value of a collective, when it is there."""
    return c10d.wait_tensor.default(x)


def begun(here, value):
    """What a collective gives: of gloo it is there at once, of other backends when it is waited for."""
    if not here.on_gloo:
        return value
    return [wait(x) for x in value] if isinstance(value, list) else wait(value)


def pairs(x):
    """x row by row; complex numbers as pairs of real ones, which backends exchange."""
    return torch.view_as_real(x.contiguous()) if x.is_complex() else x.contiguous()


def all_reduce(here, x, op, group):
    """x reduced over the group."""
    if op == "avg" and here.on_gloo:
        return all_reduce(here, x / here.sizes[group], "sum", group)
    return begun(here, c10d.all_reduce.default(x.contiguous(), op, here.groups[group]))


def all_gather(here, x, n, group):
    """The x of all n members, joined along dim 0."""
    return begun(here, c10d.all_gather_into_tensor.default(x.contiguous(), n, here.groups[group]))


def reduce_scatter(here, x, op, n, group):
    """x reduced over the n members, of which each keeps its part of dim 0."""
    if op == "avg" and here.on_gloo:
        return reduce_scatter(here, x / n, "sum", n, group)
    return begun(here, c10d.reduce_scatter_tensor.default(x.contiguous(), op, n, here.groups[group]))


def all_to_all(here, x, received, sent, group):
    """Part i of dim 0 to member i; the parts that come back are joined in the order of members."""
    value = begun(here, c10d.all_to_all_single.default(pairs(x), received, sent, here.groups[group]))
    return torch.view_as_complex(value) if x.is_complex() else value


def all_reduce_coalesced(here, xs, op, group):
    """Each of xs reduced over the group, by one collective."""
    if op == "avg" and here.on_gloo:
        return all_reduce_coalesced(here, [x / here.sizes[group] for x in xs], "sum", group)
    return begun(here, c10d.all_reduce_coalesced.default([x.contiguous() for x in xs], op, here.groups[group]))


def all_gather_coalesced(here, xs, n, group):
    """Of each of xs those of all n members, joined along dim 0, by one collective."""
    values = begun(here, c10d.all_gather_into_tensor_coalesced.default([pairs(x) for x in xs], n, here.groups[group]))
    return [torch.view_as_complex(value) if x.is_complex() else value for x, value in zip(xs, values)]


def reduce_scatter_coalesced(here, xs, op, n, group):
    """Each of xs reduced over the n members, of which each keeps its part of dim 0, by one collective."""
    if op == "avg" and here.on_gloo:
        return reduce_scatter_coalesced(here, [x / n for x in xs], "sum", n, group)
    return begun(here, c10d.reduce_scatter_tensor_coalesced.default([x.contiguous() for x in xs], op, n, here.groups[group]))


def permute(here, x, targets, group):
    """x to member targets[i] from each member i."""
    me = here.places[group]
    rows = [0] * len(targets)
    sent, received = list(rows), list(rows)
    own = pairs(x)
    sent[targets[me]] = received[targets.index(me)] = own.numel()
    flat = c10d.all_to_all_single.default(own.reshape(-1), received, sent, here.groups[group])
    value = wait(flat).reshape(own.shape)
    return torch.view_as_complex(value) if x.is_complex() else value


def exchanged(collective, here, x, *rest):
    """What a collective that reduces nothing gives of numbers that backends do not know: their bytes are exchanged."""
    value = collective(here, x.contiguous().unsqueeze(-1).view(torch.uint8), *rest)
    return value.view(x.dtype).squeeze(-1)


def widened(collective, here, x, *rest):
    """What a collective that reduces gives of numbers that backends do not know: they are reduced as wider ones."""
    wide = torch.float32 if x.is_floating_point() else torch.int32 if x.element_size() < 4 else torch.int64
    return wait(collective(here, x.to(wide), *rest)).to(x.dtype)


def reordered(x, order):
    """The equal parts of dim 0 in another order: members of a group ascend in PyTorch, the plan's may not."""
    return x.reshape(len(order), -1, *x.shape[1:])[list(order)].reshape(x.shape)


def laid(x, order):
    """x with its dims in this order in memory, slowest first, as kernels were captured with it; a copy where it lies otherwise."""
    return x.permute(order).contiguous().permute([order.index(dim) for dim in range(len(order))])


def part(here, whole, cuts):
    """What this device has of a whole tensor; a cut is a mesh dim, a tensor dim, and the chunks of which it takes a piece each."""
    def rows(x, dim, n, k):
        size = -(-x.shape[dim] // n)
        start = min(size * k, x.shape[dim])
        return x.narrow(dim, start, min(size, x.shape[dim] - start))

    for mesh_dim, dim, chunks in cuts:
        n, k = MESH_SIZES[mesh_dim], here.coordinate[mesh_dim]
        whole = torch.cat([rows(rows(whole, dim, chunks, c), dim, n, k) for c in range(chunks)], dim)
    return whole


def scan(here, step, first, xs, captured, trips, reverse):
    """step on row after row of xs, each trip with what the one before it handed on: the last of that, and what else it made, stacked.

    The list of what the first trip is handed is emptied: later trips do not hold it."""
    stacks, carry = None, list(first)
    first.clear()
    for k in reversed(range(trips)) if reverse else range(trips):
        made = step(here, *carry, *[x[k] for x in xs], *captured)
        carry, rows = made[: len(carry)], made[len(carry) :]
        if stacks is None:
            stacks = [row.new_empty((trips, *row.shape)) for row in rows]
        for stack, row in zip(stacks, rows):
            stack[k] = row
        del made, rows
    return [*carry, *stacks]


def while_loop(here, goes_on, step, first, captured, most=None):
    """step again and again, as long as goes_on says so on every device; the list of what it starts from is emptied."""
    trips, carry = 0, list(first)
    first.clear()
    while (most is None or trips < most) and bool(goes_on(here, *carry, *captured)[0]):
        carry = step(here, *carry, *captured)
        trips += 1
    return carry


def case(index, branches):
    """The branch of an index; the last one where there is none."""
    k = int(index)
    return branches[k if 0 <= k < len(branches) else -1]


def native_dropout(here, x, p, train, whole, cuts, order=None):
    """Dropout as one device does it: the mask of the whole tensor is drawn, of which this device takes its part.

    Numbers are drawn in memory order; `order` has the dims from the slowest to the fastest, by default as they come."""
    if train is False:
        return aten.native_dropout.default(x, p, train)
    order = tuple(range(len(whole))) if order is None else order
    if x.device.type == "cpu":
        # What the kernel draws there; one byte an element.
        mask = torch.empty_permuted(whole, order, dtype=torch.bool, device=x.device).bernoulli_(1 - p)
    else:
        mask = aten.native_dropout.default(torch.empty_permuted(whole, order, dtype=x.dtype, device=x.device), p, True)[1]
    mask = part(here, mask, cuts)
    return x.mul(mask).mul_(0.0 if p == 1 else 1 / (1 - p)), mask


def drawn(here, draw, x, whole, cuts, order=None):
    """What draw makes of x on one device: it takes the whole tensor, of which other devices' parts are ones, and this device keeps its part.

    `order` has the dims of x from the slowest to the fastest in memory, by default as they come."""
    shape = list(x.shape)
    for _, dim, _ in cuts:
        shape[dim] = whole[dim]
    size = 1
    for n in shape:
        size *= n
    values = x.new_ones(size)
    values[part(here, torch.arange(size, device=x.device).reshape(shape), cuts)] = x
    values = values.reshape(shape)
    if order is not None:
        values = torch.empty_permuted(shape, order, dtype=x.dtype, device=x.device).copy_(values)
    return part(here, draw(values), cuts)


def flex_body(here, body, at, rows, heads):
    """A body of flex attention as PyTorch calls it, with the batch in place `at` and the head behind it: it counts those of this device,
    and their numbers in the whole come as its last arguments."""
    def called(*args):
        args = list(args)
        for place, numbers in ((at + 1, heads), (at, rows)):
            if numbers is not None:
                args[place] = aten.index.Tensor(args.pop(), [args[place]])
        return body(here, *args)

    return called


def flex_blocks(here, query, key, mask_mod, mask, buffers, sizes, rows, heads):
    """The blocks of a mask that was made before the program began, made again from its function; a CPU reads none."""
    if here.device.type == "cpu":
        return [None] * 12
    from torch.nn.attention.flex_attention import create_block_mask

    place = (mask_mod, query.shape, key.shape)
    known = vars(here).setdefault("flex_blocks", {})
    made = known.get(place)
    if made is None:
        asks = [None if numbers is None else size for numbers, size in zip((rows, heads), query.shape)]
        whole = create_block_mask(
            lambda *numbers: mask(*numbers, *buffers), *asks, query.shape[2], key.shape[2], here.device, BLOCK_SIZE=tuple(sizes[2:])
        )
        made = list(whole.as_tuple()[2:-3])
        if not buffers:
            known[place] = made
    return made


def flex_call(
    here, operator, tensors, score_mod, joint_mod, mask_mod, scale, rows, heads, score_buffers, mask_buffers, blocks, sizes, options,
):
    """A call of flex attention or of its backward: PyTorch's own on a CPU, and what Inductor makes of it elsewhere."""
    numbers = [x for x in (rows, heads) if x is not None]
    read, asked = [*score_buffers, *numbers], [*mask_buffers, *numbers]
    body = flex_body(here, mask_mod, 0, rows, heads)
    def mask(*args):
        return body(*args)[0] if mask_mod is not None else args[0].new_ones((), dtype=torch.bool)

    own = flex_body(here, score_mod, 1, rows, heads)
    bodies = [lambda *args: own(*args)[0]]
    if joint_mod is not None:
        gradients = flex_body(here, joint_mod, 1, rows, heads)
        bodies.append(lambda *args: [*gradients(*args), *[None] * len(numbers)])
    made = blocks or flex_blocks(here, tensors[0], tensors[1], mask_mod, mask, asked, sizes, rows, heads)
    lists = [tensors, read, asked, made]

    def run(*present):
        left = list(present)
        given, read, asked, made = ([None if x is None else left.pop(0) for x in one] for one in lists)
        block_mask = (*sizes[:2], *made, *sizes[2:], mask)
        return operator(*given, *bodies, block_mask, scale, dict(options), tuple(read), tuple(asked))

    present = [x for one in lists for x in one if x is not None]
    if here.device.type == "cpu":
        return run(*present)
    place = (operator, score_mod, *(x.shape for x in present))
    compiled = vars(here).setdefault("flex_calls", {})
    if place not in compiled:
        from torch.fx.experimental.proxy_tensor import make_fx

        compiled[place] = torch._inductor.compile(make_fx(run)(*present), present)
    return compiled[place](*present)


def flex_attention(
    here, query, key, value, *, score_mod, mask_mod=None, scale, rows=None, heads=None,
    score_buffers=(), mask_buffers=(), blocks=(), sizes=(), options=(),
):
    """Attention whose scores score_mod changes and whose pairs mask_mod keeps."""
    with torch.no_grad():
        return flex_call(
            here, torch.ops.higher_order.flex_attention, [query, key, value], score_mod, None, mask_mod,
            scale, rows, heads, score_buffers, mask_buffers, blocks, sizes, options,
        )


def flex_attention_backward(
    here, query, key, value, out, logsumexp, grad_out, grad_logsumexp, *, score_mod, joint_mod, wanted=(), mask_mod=None, scale,
    rows=None, heads=None, score_buffers=(), mask_buffers=(), blocks=(), sizes=(), options=(),
):
    """The gradients of query, key and value, and those of what score_mod reads that are wanted."""
    # PyTorch gives gradients of tensors that require them.
    score_buffers = [x.detach().requires_grad_(w) for x, w in zip(score_buffers, wanted)]
    with torch.no_grad():
        *own, others = flex_call(
            here, torch.ops.higher_order.flex_attention_backward, [query, key, value, out, logsumexp, grad_out, grad_logsumexp],
            score_mod, joint_mod, mask_mod, scale, rows, heads, score_buffers, mask_buffers, blocks, sizes, options,
        )
    return [*own, *others[: len(score_buffers)]]


def packed_scores(query, key, cu_seq_q, cu_seq_k, is_causal, scale, window_size):
    """Scores of all pairs of each head, minus infinity where a row does not read another, and what products were scaled by."""
    factor = query.shape[-1] ** -0.5 if scale is None else scale
    places = []
    for rows, starts in ((query.shape[0], cu_seq_q), (key.shape[0], cu_seq_k)):
        row = torch.arange(rows, device=query.device)
        sequence = (row.unsqueeze(1) >= starts[1:].unsqueeze(0)).sum(1)
        # Rows behind the last sequence belong to none. Places are counted from the ends of sequences.
        places.append((sequence, row - torch.cat([starts[1:], starts[-1:]])[sequence]))
    (own, place), (other, at) = places
    own, place = own.unsqueeze(1), place.unsqueeze(1)
    reads = (own == other) & (own < cu_seq_q.shape[0] - 1)
    left, right = (-1, -1) if window_size is None else window_size
    if is_causal:
        right = 0
    if left >= 0:
        reads = reads & (at - place >= -left)
    if right >= 0:
        reads = reads & (at - place <= right)
    key = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    scores = torch.einsum("qhd,khd->hqk", query.float(), key.float()) * factor
    return torch.where(reads, scores, float("-inf")), factor


def packed_shares(scores, lse):
    """The softmax of scores with its log-sum-exp; rows that read nothing have zeros."""
    return torch.exp(scores - torch.where(lse == float("-inf"), 0.0, lse).unsqueeze(-1))


def varlen_attention(
    here, query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal=False, scale=None, window_size=None, enable_gqa=False,
    seqused_k=None, block_table=None, num_splits=None,
):
    """Attention of packed sequences: PyTorch's kernel, which a CPU does not have, or what it means."""
    if query.device.type != "cpu":
        from torch.nn.attention import varlen

        return varlen._varlen_attn(
            query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, is_causal, scale, window_size, enable_gqa, num_splits=num_splits
        )
    ends = cu_seq_q if cu_seq_k is None else cu_seq_k
    scores, _ = packed_scores(query, key, cu_seq_q, ends, is_causal, scale, window_size)
    lse = scores.logsumexp(-1)
    value = value.repeat_interleave(query.shape[1] // value.shape[1], 1).float()
    out = torch.einsum("hqk,khd->qhd", packed_shares(scores, lse), value)
    return out.to(query.dtype), lse, torch.zeros(2, dtype=torch.uint64)


def varlen_attention_backward(
    here, grad_out, query, key, value, out, lse, cu_seq_q, cu_seq_k, max_q, max_k, is_causal, rng_state, scale=None, window_size=None,
):
    """The gradients of query, key and value (Dao et al., 2022, appendix B)."""
    if query.device.type != "cpu":
        from torch.nn.attention import varlen

        return varlen._varlen_attn_backward(
            grad_out, query, key, value, out, lse, cu_seq_q, cu_seq_k, max_q, max_k, is_causal, rng_state, scale, window_size
        )
    scores, factor = packed_scores(query, key, cu_seq_q, cu_seq_k, is_causal, scale, window_size)
    shares, gradient = packed_shares(scores, lse), grad_out.float()
    keys, values = (x.repeat_interleave(query.shape[1] // x.shape[1], 1).float() for x in (key, value))
    inner = (gradient * out.float()).sum(-1).t().unsqueeze(-1)
    of_scores = shares * (torch.einsum("qhd,khd->hqk", gradient, values) - inner) * factor

    def folded(x, like):
        return x.view(like.shape[0], like.shape[1], -1, like.shape[2]).sum(2).to(like.dtype)

    return (
        torch.einsum("hqk,khd->qhd", of_scores, keys).to(query.dtype),
        folded(torch.einsum("hqk,qhd->khd", of_scores, query.float()), key),
        folded(torch.einsum("hqk,qhd->khd", shares, gradient), value),
    )
