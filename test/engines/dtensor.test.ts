import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { afterAll, beforeAll, expect, it } from 'vitest';

import { readPlan } from '../../src/plan/record/schema.ts';
import { dtensorText } from '../../src/report/text/dtensor-text.ts';
import { cli, fixture } from '../cli/support.ts';
import { startChecks } from './support/checks.ts';

/**
 * The Python of a report, run by real PyTorch on four processes: parameters as in the plan, the
 * numbers of one device.
 */

const checked = startChecks();
let folder = '';
beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'shardwright-dtensor-'))));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const RUN = `
import os, sys
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn

class Layers(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(1024, 4096), nn.Linear(4096, 1024)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 1024))  # neither it nor the range below is placed
    def forward(self, x):
        x = x * self.scale + torch.arange(1024)[None] * 1e-3
        return self.fc2(self.fc1(x).relu()).square().mean()

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = Layers()
        self.other = self.m.fc1  # a tied parameter stays one
    def forward(self, x):
        return self.m(x)

def work(rank):
    sys.path.insert(0, os.environ["PLACED"])
    from placed import PLACEMENTS, place, implicit_replication
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["PORT"])
    dist.init_process_group("gloo", rank=rank, world_size=4)
    torch.manual_seed(0)
    alone, model = Model(), Model()
    model.load_state_dict(alone.state_dict())
    x = torch.randn(8, 1024)
    alone(x).backward()
    place(model, device="cpu")
    with implicit_replication():
        loss = model(x)
        loss.backward()
    assert model.other.weight is model.m.fc1.weight
    assert torch.allclose(loss.full_tensor(), alone(x), rtol=1e-4), (loss, alone(x))
    for (name, p), q in zip(model.named_parameters(), alone.parameters()):
        assert list(p.placements) == PLACEMENTS[name], (name, p.placements)
        assert torch.allclose(p.grad.full_tensor(), q.grad, rtol=1e-3, atol=1e-6), name
    if rank == 0:
        print({name: [str(q) for q in p.placements] for name, p in model.named_parameters()}, flush=True)
    dist.barrier()
    dist.destroy_process_group()
    # Not by the interpreter: it aborts where a thread of gloo still holds a tensor when it ends.
    os._exit(0)

if __name__ == "__main__":
    mp.start_processes(work, nprocs=4, start_method="fork")
`;

it('the parameters of a plan run under DTensor, unplaced tensors taken as replicas', async () => {
  const out = join(folder, 'plan');
  const pins = ['m.fc1.weight=S(0)R', 'm.fc1.bias=S(0)R', 'm.fc2.weight=RS(1)'].flatMap((pin) => [
    '--pin',
    pin,
  ]);
  const run = await cli(
    'plan',
    fixture('mlp-loss'),
    '--mesh',
    'dp=2,tp=2',
    '--cluster',
    'dgx-h100',
    '--no-recipes',
    '--json',
    '-o',
    out,
    ...pins,
  );
  expect(run.code, run.err).toBe(0);
  writeFileSync(join(folder, 'placed.py'), dtensorText(readPlan(run.out)));
  writeFileSync(join(folder, 'run.py'), RUN);
  const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
  const printed = execFileSync(python, [join(folder, 'run.py')], {
    encoding: 'utf8',
    env: { ...process.env, PLACED: folder, PORT: String(20000 + (process.pid % 20000)) },
  });
  expect(printed).toContain(
    "'m.fc1.weight': ['S(0)', 'R'], 'm.fc1.bias': ['S(0)', 'R'], 'm.fc2.weight': ['R', 'S(1)']",
  );
});

const UNEVEN = `class m(torch.nn.Module):
    def forward(self, p_w: "f32[7, 8]", x: "f32[4, 8]"):
        t: "f32[8, 7]" = torch.ops.aten.t.default(p_w)
        y: "f32[4, 7]" = torch.ops.aten.mm.default(x, t)
        return (y,)
`;
const FULLY_SHARDED = `
import json, os, sys
import torch, torch.distributed as dist, torch.multiprocessing as mp
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from shardwright.placements import as_dtensor, part_of, placements

def work(rank, dp, tp):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=os.environ["PORT"])
    dist.init_process_group("gloo", rank=rank, world_size=dp * tp)
    mesh = dist.init_device_mesh("cpu", (dp, tp), mesh_dim_names=("dp", "tp"))
    entry = json.load(open(os.path.join(os.environ["PLACED"], "placements.json")))["primals"][0]
    linear = nn.Linear(8, 7, bias=False)
    whole = torch.arange(56.0).view(7, 8)
    with torch.no_grad():
        linear.weight.copy_(whole)
    parallelize_module(linear, mesh["tp"], ColwiseParallel())
    fully_shard(linear, mesh=mesh["dp"])
    own = part_of(whole, placements(entry), (dp, tp), mesh.get_coordinate()).contiguous()
    assert tuple(linear.weight.placements) == placements(entry), (linear.weight.placements, entry)
    assert torch.equal(linear.weight.to_local(), own), (rank, linear.weight.to_local(), own)
    assert torch.equal(as_dtensor(own, entry, mesh).full_tensor(), whole), rank
    dist.destroy_process_group()
    # Not by the interpreter: it aborts where a thread of gloo still holds a tensor when it ends.
    os._exit(0)

if __name__ == "__main__":
    dp, tp = map(int, sys.argv[1:])
    mp.start_processes(work, (dp, tp), nprocs=dp * tp, start_method="fork")
    print("equal")
`;

it('_S(0, 2)S(0) of rows that do not divide is what fully_shard holds', async () => {
  const [dp, tp] = [3, 2];
  const at = mkdtempSync(join(folder, 'uneven-'));
  writeFileSync(join(at, 'uneven.fx.txt'), UNEVEN);
  const mesh = ['--mesh', `dp=${dp},tp=${tp}`, '--cluster', 'dgx-h100', '--no-recipes'];
  const pin = ['--pin', `p_w=_S(0, ${tp})S(0)`];
  const plan = await cli('plan', '-v', join(at, 'uneven.fx.txt'), ...mesh, ...pin, '-o', at);
  expect(plan.code, plan.err).toBe(0);
  const written = await cli('export', at, '--target', 'torch', '--check', '-o', at);
  expect(written.code, written.err).toBe(0);
  writeFileSync(join(at, 'sharded.py'), FULLY_SHARDED);
  const python = process.env.SHARDWRIGHT_PYTHON ?? 'python3';
  const env = {
    ...process.env,
    OMP_NUM_THREADS: '1',
    PYTHONPATH: fileURLToPath(new URL('../../python', import.meta.url)),
    PLACED: at,
    PORT: String(20000 + (process.pid % 20000)),
  };
  const sizes = [String(dp), String(tp)];
  const compared = execFileSync(python, [join(at, 'sharded.py'), ...sizes], {
    encoding: 'utf8',
    env,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  expect(compared).toContain('equal');
  expect(await checked(at, dp * tp)).toMatchObject({ compared: 1, failed: [] });
});
