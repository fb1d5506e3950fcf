import { Messages } from './bound.ts';
import { evaluate } from './check.ts';
import { backtrack, Eliminator } from './eliminate.ts';
import { networkOf, type Network } from './network.ts';
import { Pool } from './pool.ts';
import { Pruner } from './prune.ts';
import { Reducer } from './reduce.ts';
import type { Problem, Solution, SolveOptions } from './types.ts';

export let trace: ((...x: unknown[]) => void) | undefined;
export function setTrace(f: (...x: unknown[]) => void): void {
  trace = f;
}
function shape(net: Network): string {
  let n = 0,
    s = 0,
    m = 0,
    f = 0,
    c = 0;
  for (let i = 0; i < net.count; i++)
    if (net.gone[i] === 0) {
      n++;
      s += net.size[i];
      m = Math.max(m, net.size[i]);
    }
  for (const x of net.factors)
    if (x) {
      f++;
      c += x.table.cells.length;
    }
  return `live ${n} values ${s} max ${m} factors ${f} cells ${c}`;
}

export function solve(problem: Problem, _options: SolveOptions = {}): Solution {
  const t0 = performance.now();
  let last = t0;
  const lap = (what: string, ...rest: unknown[]): void => {
    const now = performance.now();
    trace?.(what, (now - last).toFixed(1), ...rest);
    last = now;
  };
  const pool = new Pool();
  const net = networkOf(problem, pool);
  lap('network', shape(net));
  const reducer = new Reducer();
  const eliminator = new Eliminator(pool);
  const pruner = new Pruner();
  const infeasible: Solution = {
    status: 'infeasible',
    choice: new Int32Array(0),
    objective: Infinity,
    bound: Infinity,
    gap: 0,
    solver: 'elimination',
    seconds: 0,
    statistics: {},
    ties: 'engine',
  };
  if (!reducer.reduce(net)) return infeasible;
  lap('reduce', shape(net));
  const core = net.clone();
  // Chains and triangles first: they keep the network pairwise.
  const easy = eliminator.run(core, { cells: 5e4, work: 1e7, totalWork: 1e9, arity: 2, slack: Infinity });
  if (easy.status === 'infeasible') return infeasible;
  lap('easy', easy.status, shape(core));
  const at = new Int32Array(net.count).fill(-1);
  let choice: Int32Array | undefined;
  const finish = (from: Network, buckets: Parameters<typeof backtrack>[1], positions: Int32Array): Int32Array => {
    backtrack(from, buckets, positions);
    return positions;
  };
  let bound = core.constant;
  if (easy.status === 'done') {
    finish(core, easy.buckets, at);
  } else {
    const work = core.clone();
    if (!reducer.reduce(work)) return infeasible;
    lap('reduce2', shape(work));
    const messages = new Messages(work);
    lap('init');
    let lb = -Infinity;
    let ub = Infinity;
    let best = at;
    for (let k = 0; k < 50; k++) {
      const b = messages.sweep();
      lb = Math.max(lb, b);
      const d = messages.decode();
      const c = costOf(work, d);
      if (c < ub) {
        ub = c;
        best = d;
      }
      lap('sweep', k, b, c, 'gap', (ub - lb) / Math.max(1, ub));
      if (ub - lb < 1e-7 * ub) break;
    }
    const tight = work.clone();
    pruner.shift(tight, messages);
    pruner.normalise(tight);
    lap('shift', tight.constant, ub - tight.constant);
    pruner.prune(tight, ub);
    lap('prune', shape(tight));
    if (!reducer.reduce(tight)) throw new Error('internal: pruned the incumbent');
    lap('reduce3', shape(tight));
    pruner.prune(tight, ub);
    const slack = ub - tight.constant;
    const r = eliminator.run(tight, { cells: 4e6, work: 4e8, totalWork: 4e9, arity: 99, slack });
    lap('core', r.status, eliminator.counts);
    if (r.status === 'infeasible' || r.status === 'done') {
      bound = tight.constant;
      const sub = new Int32Array(net.count).fill(-1);
      finish(tight, r.buckets, sub);
      const values = new Int32Array(net.count).fill(-1);
      for (let i = 0; i < net.count; i++) if (sub[i] >= 0) values[i] = pool.mapOf(tight.values[i])[sub[i]];
      const all = tight.expand(values);
      for (let i = 0; i < net.count; i++) if (core.gone[i] === 0) at[i] = positionOf(core, i, all[i]);
    } else {
      bound = lb;
      for (let i = 0; i < net.count; i++)
        if (work.gone[i] === 0) best[i] = pool.mapOf(work.values[i])[best[i]];
      const all = work.expand(best);
      for (let i = 0; i < net.count; i++) if (core.gone[i] === 0) at[i] = positionOf(core, i, all[i]);
    }
    finish(core, easy.buckets, at);
  }
  const values = new Int32Array(net.count);
  for (let i = 0; i < net.count; i++) if (at[i] >= 0) values[i] = pool.mapOf(net.values[i])[at[i]];
  choice = net.expand(values);
  lap('back');
  const e = evaluate(problem, choice);
  lap('evaluate');
  const objective = Number(e.cost);
  return {
    status: objective === bound ? 'optimal' : 'feasible',
    choice,
    objective,
    bound,
    gap: (objective - bound) / Math.max(1, Math.abs(objective)),
    solver: 'elimination',
    seconds: (performance.now() - t0) / 1000,
    statistics: { ...eliminator.counts },
    ties: 'engine',
  };
}

function positionOf(net: Network, i: number, value: number): number {
  return net.pool.mapOf(net.values[i]).indexOf(value);
}

function costOf(net: Network, at: Int32Array): number {
  const { pool } = net;
  let sum = net.constant;
  for (let i = 0; i < net.count; i++) if (net.gone[i] === 0) sum += pool.vectorOf(net.unary[i])[at[i]];
  for (const f of net.factors) {
    if (f === undefined) continue;
    let p = 0;
    for (let k = 0; k < f.vars.length; k++) p = p * f.table.dims[k] + pool.mapOf(f.maps[k])[at[f.vars[k]]];
    sum += f.table.cells[p];
  }
  return sum;
}
