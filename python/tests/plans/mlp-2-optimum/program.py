"""What each device of the mesh runs: local calls, and collectives where the plan has them.

Written by shardwright 0.1.0, export --target torch.
Plan sha256:076a2b9e378aacf50652f3f8ca8e97f9b92a3b570c0ea942cf9d74d56de07bff, mesh dp=2, model mlp, cluster paper.

forward(here, primals) returns (outputs, saved); backward(here, saved, tangents) returns one gradient or None for each of
the primals, and empties `saved`. placements.json says what each of them is; collectives.json lists the communication.
"""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

aten = torch.ops.aten
c10d = torch.ops._c10d_functional

MESH_NAMES = ("dp",)
MESH_SIZES = (2,)
# Groups that the collectives run in: the mesh dims that their members differ in.
GROUPS = ("dp",)
# Integers that differ from device to device, by place in the mesh.
RANK_INTS = {
    "not(first, dp)": (0, 1),
    "start(8, dp) - 0": (0, 4),
    "end of a slice": (4, 8),
}

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


def forward(here, primals):
    int_not_first_dp = RANK_INTS["not(first, dp)"][here.rank]
    int_start_8_dp_0 = RANK_INTS["start(8, dp) - 0"][here.rank]
    int_end_of_a_slice = RANK_INTS["end of a slice"][here.rank]
    (
        primals_1,  # fc1.weight: f64[16, 16]
        primals_2,  # fc1.bias: f64[16]
        primals_3,  # fc2.weight: f64[8, 16]
        primals_4,  # fc2.bias: f64[8]
        x,  # x: f64[8, 16]
        target_0,  # target_0: f64[8, 8]
    ) = primals
    t = aten.t.default(primals_1); del primals_1  # f64[16, 16]
    addmm = aten.addmm.default(primals_2, x, t); del t, primals_2  # f64[8, 16]
    relu = aten.relu.default(addmm); del addmm  # f64[8, 16]
    detach = aten.detach.default(relu)  # f64[8, 16]
    t_1 = aten.t.default(primals_3)  # f64[16, 8]
    full = aten.full.default([], int_not_first_dp, dtype=torch.bool, device=here.device)  # b8[]
    masked_fill = aten.masked_fill.Scalar(primals_4, full, 0); del full, primals_4  # f64[8]
    addmm_1 = aten.addmm.default(masked_fill, relu, t_1); del t_1, masked_fill  # f64[8, 8]
    addmm_1_reduce_scatter = reduce_scatter(here, addmm_1, "sum", 2, "dp")  # f64[4, 8]
    slice_1 = aten.slice.Tensor(target_0, 0, int_start_8_dp_0, int_end_of_a_slice)  # f64[4, 8]
    addmm_1_reduce_scatter = wait(addmm_1_reduce_scatter)
    mse_loss = aten.mse_loss.default(addmm_1_reduce_scatter, slice_1); del addmm_1_reduce_scatter, slice_1  # f64[]
    mse_loss_all_reduce = all_reduce(here, mse_loss, "avg", "dp"); del mse_loss  # f64[]
    mse_loss_all_reduce = wait(mse_loss_all_reduce)
    return [mse_loss_all_reduce], [primals_3, x, target_0, relu, detach, addmm_1]


def backward(here, saved, tangents):
    int_start_8_dp_0 = RANK_INTS["start(8, dp) - 0"][here.rank]
    int_end_of_a_slice = RANK_INTS["end of a slice"][here.rank]
    (
        primals_3,  # f64[8, 16]
        x,  # f64[8, 16]
        target_0,  # f64[8, 8]
        relu,  # f64[8, 16]
        detach,  # f64[8, 16]
        addmm_1,  # f64[8, 8]
    ) = saved
    saved.clear()
    (
        tangents_1,  # f64[]
    ) = tangents
    addmm_1_reduce_scatter_1 = reduce_scatter(here, addmm_1, "sum", 2, "dp"); del addmm_1  # f64[4, 8]
    slice_1 = aten.slice.Tensor(target_0, 0, int_start_8_dp_0, int_end_of_a_slice); del target_0  # f64[4, 8]
    addmm_1_reduce_scatter_1 = wait(addmm_1_reduce_scatter_1)
    mse_loss_backward_1 = aten.mse_loss_backward.default(tangents_1, addmm_1_reduce_scatter_1, slice_1, 2); del addmm_1_reduce_scatter_1, slice_1, tangents_1  # f64[4, 8]
    mse_loss_backward = aten.div.Scalar(mse_loss_backward_1, 64.0); del mse_loss_backward_1  # f64[4, 8]
    t_1_recomputed = aten.t.default(primals_3); del primals_3  # f64[16, 8]
    t_2 = aten.t.default(t_1_recomputed); del t_1_recomputed  # f64[8, 16]
    mse_loss_backward_all_gather = all_gather(here, mse_loss_backward, 2, "dp")  # f64[8, 8]
    mse_loss_backward_all_gather = wait(mse_loss_backward_all_gather)
    mm = aten.mm.default(mse_loss_backward_all_gather, t_2); del t_2  # f64[8, 16]
    t_3 = aten.t.default(mse_loss_backward_all_gather); del mse_loss_backward_all_gather  # f64[8, 8]
    mm_1 = aten.mm.default(t_3, relu); del t_3, relu  # f64[8, 16]
    t_4 = aten.t.default(mm_1); del mm_1  # f64[16, 8]
    sum_1 = aten.sum.dim_IntList(mse_loss_backward, [0], True); del mse_loss_backward  # f64[1, 8]
    sum_1_all_reduce = all_reduce(here, sum_1, "sum", "dp"); del sum_1  # f64[1, 8]
    sum_1_all_reduce = wait(sum_1_all_reduce)
    view = aten.reshape.default(sum_1_all_reduce, [8]); del sum_1_all_reduce  # f64[8]
    t_5 = aten.t.default(t_4); del t_4  # f64[8, 16]
    detach_1 = aten.detach.default(detach); del detach  # f64[8, 16]
    threshold_backward = aten.threshold_backward.default(mm, detach_1, 0); del mm, detach_1  # f64[8, 16]
    t_6 = aten.t.default(threshold_backward)  # f64[16, 8]
    mm_2 = aten.mm.default(t_6, x); del t_6, x  # f64[16, 16]
    t_7 = aten.t.default(mm_2); del mm_2  # f64[16, 16]
    sum_2 = aten.sum.dim_IntList(threshold_backward, [0], True); del threshold_backward  # f64[1, 16]
    view_1 = aten.reshape.default(sum_2, [16]); del sum_2  # f64[16]
    t_8 = aten.t.default(t_7); del t_7  # f64[16, 16]
    return [t_8, view_1, t_5, view, None, None]
