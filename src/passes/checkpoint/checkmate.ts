import { ShardwrightError } from '../../errors.ts';

/**
 * Optimal rematerialisation of a whole graph (Checkmate, Jain et al., arXiv:1910.02653): the integer program, and for unit
 * graphs of few nodes an exact search over what is in memory, which serves as its judge.
 */

/** Nodes in topological order; the last one is the goal. */
export interface RematGraph {
  readonly nodes: readonly { readonly bytes: number; readonly seconds: number; readonly needs: readonly number[] }[];
}

/** Most nodes of the search: one bit each. */
const SEARCH_NODES = 24;

/**
 * Least total time of evaluations that end in the last node, when a node's result and everything it needs must be in memory
 * while it runs and memory never holds more than the limit. Undefined when no order fits.
 *
 * @throws E_LIMIT for more than 24 nodes
 */
export function leastEvaluations(graph: RematGraph, limitBytes: number): number | undefined {
  const { nodes } = graph;
  const n = nodes.length;
  if (n > SEARCH_NODES)
    throw new ShardwrightError('E_LIMIT', `the search takes ${SEARCH_NODES} nodes at most, not ${n}`);
  const needs = nodes.map((v) => v.needs.reduce((mask, i) => mask | (1 << i), 0));
  const bytes = new Float64Array(1 << n);
  for (let mask = 1; mask < 1 << n; mask++) {
    const low = 31 - Math.clz32(mask & -mask);
    bytes[mask] = bytes[mask & (mask - 1)] + nodes[low].bytes;
  }
  const goal = 1 << (n - 1);
  const best = new Float64Array(1 << n).fill(Infinity);
  best[0] = 0;
  // Dijkstra with one bucket a distinct time: evaluations rise, so a sorted frontier is enough.
  let frontier: number[] = [0];
  const waiting = new Map<number, number[]>();
  for (let time = 0; ;) {
    for (let q = 0; q < frontier.length; q++) {
      const mask = frontier[q];
      if (best[mask] !== time) continue;
      if ((mask & goal) !== 0) return time;
      for (let v = 0; v < n; v++) {
        if ((mask & (1 << v)) !== 0 || (needs[v] & ~mask) !== 0) continue;
        const spare = mask & ~needs[v];
        // Anything that the node does not need may be dropped before it runs.
        for (let keep = spare; ; keep = (keep - 1) & spare) {
          const after = keep | needs[v] | (1 << v);
          const then = time + nodes[v].seconds;
          if (bytes[after] <= limitBytes && then < best[after]) {
            best[after] = then;
            if (nodes[v].seconds === 0) frontier.push(after);
            else {
              const list = waiting.get(then);
              if (list === undefined) waiting.set(then, [after]);
              else list.push(after);
            }
          }
          if (keep === 0) break;
        }
      }
    }
    if (waiting.size === 0) return undefined;
    time = Math.min(...waiting.keys());
    frontier = waiting.get(time) ?? [];
    waiting.delete(time);
  }
}

/** The chain with a mirrored backward pass: node k needs k - 1, node 2n - i needs node i for i < n. Unit bytes and seconds. */
export function mirroredChain(n: number): RematGraph {
  const nodes = Array.from({ length: 2 * n + 1 }, (_, k) => ({
    bytes: 1,
    seconds: 1,
    needs: [...(k > n && 2 * n - k < k - 1 ? [2 * n - k] : []), ...(k > 0 ? [k - 1] : [])],
  }));
  return { nodes };
}

/**
 * Checkmate's integer program in the text form of CPLEX LP files, for any solver. Stage t computes node t for the first
 * time: `r_t_i` computes node i in stage t, `s_t_i` keeps it into stage t, `u_t_k` is memory after node k of stage t,
 * `f_t_i_k` frees node i after node k.
 */
export function checkmateLp(graph: RematGraph, limitBytes: number): string {
  const { nodes } = graph;
  const n = nodes.length;
  const users = nodes.map((_, i) => nodes.flatMap((v, k) => (v.needs.includes(i) ? [k] : [])));
  const rows: string[] = [];
  const binaries: string[] = [];
  const bounds: string[] = [];
  const r = (t: number, i: number): string => `r_${t}_${i}`;
  const s = (t: number, i: number): string => `s_${t}_${i}`;
  const u = (t: number, k: number): string => `u_${t}_${k}`;
  const f = (t: number, i: number, k: number): string => `f_${t}_${i}_${k}`;
  const objective: string[] = [];
  for (let t = 0; t < n; t++) {
    for (let i = 0; i <= t; i++) {
      objective.push(`${nodes[i].seconds} ${r(t, i)}`);
      binaries.push(r(t, i));
    }
    bounds.push(`${r(t, t)} = 1`);
    for (let i = 0; i < t; i++) {
      binaries.push(s(t, i));
      rows.push(`${s(t, i)} - ${r(t - 1, i)}${i < t - 1 ? ` - ${s(t - 1, i)}` : ''} <= 0`);
    }
    for (let i = 0; i <= t; i++)
      for (const j of nodes[i].needs) rows.push(`${r(t, i)} - ${r(t, j)}${j < t ? ` - ${s(t, j)}` : ''} <= 0`);
    // Memory at the start of the stage, then node by node.
    const start = Array.from({ length: t }, (_, i) => ` - ${nodes[i].bytes} ${s(t, i)}`).join('');
    rows.push(`${u(t, 0)} - ${nodes[0].bytes} ${r(t, 0)}${start} = 0`);
    for (let k = 0; k <= t; k++) bounds.push(`0 <= ${u(t, k)} <= ${limitBytes}`);
    for (let k = 0; k < t; k++) {
      const freed = [...nodes[k].needs, k];
      const terms = freed.map((i) => ` + ${nodes[i].bytes} ${f(t, i, k)}`).join('');
      rows.push(`${u(t, k + 1)} - ${u(t, k)} - ${nodes[k + 1].bytes} ${r(t, k + 1)}${terms} = 0`);
      for (const i of freed) {
        binaries.push(f(t, i, k));
        // Free exactly when k is computed, nobody later in the stage needs i, and i is not kept for the next stage.
        const later = users[i].filter((q) => q > k && q <= t);
        const hazards: string[] = later.map((q) => r(t, q));
        if (t + 1 < n && i < t + 1) hazards.push(s(t + 1, i));
        const most = hazards.length + 1;
        const sum = hazards.map((h) => ` + ${h}`).join('');
        // hazards + (1 - r) >= 1 - f, and hazards + (1 - r) <= most (1 - f).
        rows.push(`${f(t, i, k)} - ${r(t, k)}${sum} >= 0`);
        rows.push(`${most} ${f(t, i, k)} - ${r(t, k)}${sum} <= ${most - 1}`);
      }
    }
  }
  return [
    'Minimize',
    ` cost: ${objective.join(' + ')}`,
    'Subject To',
    ...rows.map((row, i) => ` c${i}: ${row}`),
    'Bounds',
    ...bounds.map((b) => ` ${b}`),
    'Binaries',
    ...binaries.map((b) => ` ${b}`),
    'End',
    '',
  ].join('\n');
}
