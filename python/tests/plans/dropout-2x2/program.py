"""What each device of the mesh runs: local calls, and collectives where the plan has them.

Written by shardwright 0.1.0, export --target torch.
Plan sha256:a926993e995e0970ea6ae6a1bee8c9df99b69e6bd090b61b2ea9f5623c3cc9e6, mesh dp=2,tp=2, model drop, cluster paper.

forward(here, primals) returns (outputs, saved); backward(here, saved, tangents) returns one gradient or None for each of
the primals, and empties `saved`. placements.json says what each of them is; collectives.json lists the communication.
"""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

aten = torch.ops.aten
c10d = torch.ops._c10d_functional

MESH_NAMES = ("dp", "tp")
MESH_SIZES = (2, 2)
# Groups that the collectives run in: the mesh dims that their members differ in.
GROUPS = ("dp", "dp,tp", "tp")
# Integers that differ from device to device, by place in the mesh.
RANK_INTS = {
    "not(first, dp)": (0, 0, 1, 1),
    "not(first, tp)": (0, 1, 0, 1),
    "start(8, dp) - 0": (0, 0, 4, 4),
    "end of a slice": (4, 4, 8, 8),
    "start(8, dp, tp) - start(8, dp)": (0, 2, 0, 2),
    "end of a slice 2": (2, 4, 2, 4),
}
# Calls that draw random numbers: every device draws what one process draws, so all need one random state.
DRAWS = ("native_dropout (aten.native_dropout.default)",)

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
        self.averages = True
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
            self.averages = self.averages and dist.get_backend(own) != "gloo"

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

def all_reduce(here, x, op, group):
    """x reduced over the group."""
    if op == "avg" and not here.averages:
        return all_reduce(here, x / here.sizes[group], "sum", group)
    return c10d.all_reduce.default(x.contiguous(), op, here.groups[group])

def all_gather(here, x, n, group):
    """The x of all n members, joined along dim 0."""
    return c10d.all_gather_into_tensor.default(x.contiguous(), n, here.groups[group])

def reduce_scatter(here, x, op, n, group):
    """x reduced over the n members, of which each keeps its part of dim 0."""
    if op == "avg" and not here.averages:
        return reduce_scatter(here, x / n, "sum", n, group)
    return c10d.reduce_scatter_tensor.default(x.contiguous(), op, n, here.groups[group])

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

def native_dropout(here, x, p, train, whole, cuts):
    """Dropout as one device does it: the mask of the whole tensor is drawn, of which this device takes its part."""
    if train is False:
        return aten.native_dropout.default(x, p, train)
    if x.device.type == "cpu":
        # What the kernel draws there; one byte an element.
        mask = torch.empty(whole, dtype=torch.bool, device=x.device).bernoulli_(1 - p)
    else:
        mask = aten.native_dropout.default(torch.empty(whole, dtype=x.dtype, device=x.device), p, True)[1]
    mask = part(here, mask, cuts)
    return x.mul(mask).mul_(0.0 if p == 1 else 1 / (1 - p)), mask


def forward(here, primals):
    int_not_first_dp = RANK_INTS["not(first, dp)"][here.rank]
    int_not_first_tp = RANK_INTS["not(first, tp)"][here.rank]
    int_start_8_dp_0 = RANK_INTS["start(8, dp) - 0"][here.rank]
    int_end_of_a_slice = RANK_INTS["end of a slice"][here.rank]
    int_start_8_dp_tp_start_8_dp = RANK_INTS["start(8, dp, tp) - start(8, dp)"][here.rank]
    int_end_of_a_slice_2 = RANK_INTS["end of a slice 2"][here.rank]
    (
        primals_1,  # fc1.weight: f64[8, 16]
        primals_2,  # fc1.bias: f64[8]
        primals_3,  # fc2.weight: f64[8, 8]
        primals_4,  # fc2.bias: f64[8]
        x,  # x: f64[8, 16]
        target_0,  # target_0: f64[8, 8]
    ) = primals
    t = aten.t.default(primals_1); del primals_1  # f64[16, 8]
    addmm = aten.addmm.default(primals_2, x, t); del t, primals_2  # f64[8, 8]
    relu = aten.relu.default(addmm); del addmm  # f64[8, 8]
    detach = aten.detach.default(relu)  # f64[8, 8]
    native_dropout_1 = native_dropout(here, relu, 0.5, True, [8, 32], ((0, 1, 1), (1, 1, 1))); del relu  # (f64[8, 8], b8[8, 8])
    getitem = native_dropout_1[0]  # f64[8, 8]
    getitem_1 = native_dropout_1[1]; del native_dropout_1  # b8[8, 8]
    t_1 = aten.t.default(primals_3)  # f64[8, 8]
    full = aten.full.default([], int_not_first_dp, dtype=torch.bool, device=here.device)  # b8[]
    masked_fill = aten.masked_fill.Scalar(primals_4, full, 0); del full, primals_4  # f64[8]
    full_1 = aten.full.default([], int_not_first_tp, dtype=torch.bool, device=here.device)  # b8[]
    masked_fill_1 = aten.masked_fill.Scalar(masked_fill, full_1, 0); del masked_fill, full_1  # f64[8]
    addmm_1 = aten.addmm.default(masked_fill_1, getitem, t_1); del t_1, masked_fill_1  # f64[8, 8]
    addmm_1_reduce_scatter = reduce_scatter(here, addmm_1, "sum", 4, "dp,tp")  # f64[2, 8]
    slice_1 = aten.slice.Tensor(target_0, 0, int_start_8_dp_0, int_end_of_a_slice)  # f64[4, 8]
    slice_1_1 = aten.slice.Tensor(slice_1, 0, int_start_8_dp_tp_start_8_dp, int_end_of_a_slice_2); del slice_1  # f64[2, 8]
    addmm_1_reduce_scatter = wait(addmm_1_reduce_scatter)
    mse_loss = aten.mse_loss.default(addmm_1_reduce_scatter, slice_1_1); del addmm_1_reduce_scatter, slice_1_1  # f64[]
    mse_loss_all_reduce = all_reduce(here, mse_loss, "avg", "dp"); del mse_loss  # f64[]
    mse_loss_all_reduce = wait(mse_loss_all_reduce)
    mse_loss_all_reduce_all_reduce = all_reduce(here, mse_loss_all_reduce, "avg", "tp"); del mse_loss_all_reduce  # f64[]
    mse_loss_all_reduce_all_reduce = wait(mse_loss_all_reduce_all_reduce)
    return [mse_loss_all_reduce_all_reduce], [primals_3, x, target_0, detach, getitem, getitem_1, addmm_1]


def backward(here, saved, tangents):
    int_start_8_dp_0 = RANK_INTS["start(8, dp) - 0"][here.rank]
    int_end_of_a_slice = RANK_INTS["end of a slice"][here.rank]
    int_start_8_dp_tp_start_8_dp = RANK_INTS["start(8, dp, tp) - start(8, dp)"][here.rank]
    int_end_of_a_slice_2 = RANK_INTS["end of a slice 2"][here.rank]
    (
        primals_3,  # f64[8, 8]
        x,  # f64[8, 16]
        target_0,  # f64[8, 8]
        detach,  # f64[8, 8]
        getitem,  # f64[8, 8]
        getitem_1,  # b8[8, 8]
        addmm_1,  # f64[8, 8]
    ) = saved
    saved.clear()
    (
        tangents_1,  # f64[]
    ) = tangents
    addmm_1_reduce_scatter_1 = reduce_scatter(here, addmm_1, "sum", 4, "dp,tp"); del addmm_1  # f64[2, 8]
    slice_2 = aten.slice.Tensor(target_0, 0, int_start_8_dp_0, int_end_of_a_slice); del target_0  # f64[4, 8]
    slice_3 = aten.slice.Tensor(slice_2, 0, int_start_8_dp_tp_start_8_dp, int_end_of_a_slice_2); del slice_2  # f64[2, 8]
    addmm_1_reduce_scatter_1 = wait(addmm_1_reduce_scatter_1)
    mse_loss_backward_1 = aten.mse_loss_backward.default(tangents_1, addmm_1_reduce_scatter_1, slice_3, 2); del addmm_1_reduce_scatter_1, slice_3, tangents_1  # f64[2, 8]
    mse_loss_backward = aten.div.Scalar(mse_loss_backward_1, 64.0); del mse_loss_backward_1  # f64[2, 8]
    t_1_recomputed = aten.t.default(primals_3); del primals_3  # f64[8, 8]
    t_2 = aten.t.default(t_1_recomputed); del t_1_recomputed  # f64[8, 8]
    mse_loss_backward_all_gather = all_gather(here, mse_loss_backward, 4, "dp,tp")  # f64[8, 8]
    mse_loss_backward_all_gather = wait(mse_loss_backward_all_gather)
    mm = aten.mm.default(mse_loss_backward_all_gather, t_2); del t_2  # f64[8, 8]
    t_3 = aten.t.default(mse_loss_backward_all_gather); del mse_loss_backward_all_gather  # f64[8, 8]
    mm_1 = aten.mm.default(t_3, getitem); del t_3, getitem  # f64[8, 8]
    t_4 = aten.t.default(mm_1); del mm_1  # f64[8, 8]
    sum_1 = aten.sum.dim_IntList(mse_loss_backward, [0], True); del mse_loss_backward  # f64[1, 8]
    sum_1_all_reduce = all_reduce(here, sum_1, "sum", "dp,tp"); del sum_1  # f64[1, 8]
    sum_1_all_reduce = wait(sum_1_all_reduce)
    view = aten.reshape.default(sum_1_all_reduce, [8]); del sum_1_all_reduce  # f64[8]
    t_5 = aten.t.default(t_4); del t_4  # f64[8, 8]
    native_dropout_backward = aten.native_dropout_backward.default(mm, getitem_1, 2.0); del mm, getitem_1  # f64[8, 8]
    detach_1 = aten.detach.default(detach); del detach  # f64[8, 8]
    threshold_backward = aten.threshold_backward.default(native_dropout_backward, detach_1, 0); del native_dropout_backward, detach_1  # f64[8, 8]
    t_6 = aten.t.default(threshold_backward)  # f64[8, 8]
    mm_2 = aten.mm.default(t_6, x); del t_6, x  # f64[8, 16]
    t_7 = aten.t.default(mm_2); del mm_2  # f64[16, 8]
    sum_2 = aten.sum.dim_IntList(threshold_backward, [0], True); del threshold_backward  # f64[1, 8]
    view_1 = aten.reshape.default(sum_2, [8]); del sum_2  # f64[8]
    t_8 = aten.t.default(t_7); del t_7  # f64[8, 16]
    return [t_8, view_1, t_5, view, None, None]
