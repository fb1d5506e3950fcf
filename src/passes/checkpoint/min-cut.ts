/**
 * Least weight of nodes that separates sources from sinks in a directed graph (max-flow by shortest
 * augmenting levels, Dinic). Used for the values to keep between the forward and the backward pass.
 */

interface CutProblem {
  /** Weight of removing each node; Infinity for nodes that may not be in the cut. */
  readonly weights: readonly number[];
  /** Node pairs. */
  readonly edges: readonly (readonly [from: number, to: number])[];
  readonly sources: readonly number[];
  readonly sinks: readonly number[];
}

interface NodeCut {
  readonly weight: number;
  /** Nodes of the cut nearest to the sources, ascending. */
  readonly nodes: readonly number[];
}

/**
 * The least cut; weight Infinity when nothing separates them. A node may be source and sink: then
 * it is in every cut.
 */
export function minNodeCut(problem: CutProblem): NodeCut {
  const { weights, edges, sources, sinks } = problem;
  const n = weights.length;
  // Node v is the arc 2v -> 2v + 1; source and sink come last.
  const source = 2 * n;
  const sink = 2 * n + 1;
  const net = new FlowNetwork(2 * n + 2);
  weights.forEach((w, v) => net.add(2 * v, 2 * v + 1, w));
  for (const [a, b] of edges) net.add(2 * a + 1, 2 * b, Infinity);
  for (const v of sources) net.add(source, 2 * v, Infinity);
  for (const v of sinks) net.add(2 * v + 1, sink, Infinity);
  const weight = net.maximize(source, sink);
  if (weight === Infinity) return { weight, nodes: [] };
  const reached = net.reachable(source);
  const nodes: number[] = [];
  for (let v = 0; v < n; v++) if (reached[2 * v] === 1 && reached[2 * v + 1] === 0) nodes.push(v);
  return { weight, nodes };
}

class FlowNetwork {
  private readonly heads: number[][];
  private readonly to: number[] = [];
  private readonly capacity: number[] = [];

  constructor(private readonly size: number) {
    this.heads = Array.from({ length: size }, () => []);
  }

  add(from: number, to: number, capacity: number): void {
    this.heads[from].push(this.to.length);
    this.to.push(to);
    this.capacity.push(capacity);
    this.heads[to].push(this.to.length);
    this.to.push(from);
    this.capacity.push(0);
  }

  /** Value of the largest flow; Infinity as soon as a path without limit is found. */
  maximize(source: number, sink: number): number {
    let total = 0;
    for (;;) {
      const level = this.levels(source);
      if (level[sink] < 0) return total;
      const next = new Int32Array(this.size);
      for (;;) {
        const pushed = this.push(source, sink, level, next);
        if (pushed === Infinity) return Infinity;
        if (pushed === 0) break;
        total += pushed;
      }
    }
  }

  /** 1 for every node that residual arcs reach. */
  reachable(source: number): Uint8Array {
    const level = this.levels(source);
    return Uint8Array.from(level, (l) => (l >= 0 ? 1 : 0));
  }

  private levels(source: number): Int32Array {
    const level = new Int32Array(this.size).fill(-1);
    level[source] = 0;
    const queue = [source];
    for (const v of queue)
      for (const e of this.heads[v])
        if (this.capacity[e] > 0 && level[this.to[e]] < 0) {
          level[this.to[e]] = level[v] + 1;
          queue.push(this.to[e]);
        }
    return level;
  }

  /** One augmenting path along rising levels, without recursion. */
  private push(source: number, sink: number, level: Int32Array, next: Int32Array): number {
    const path: number[] = [];
    let v = source;
    while (v !== sink) {
      let found = -1;
      for (; next[v] < this.heads[v].length; next[v]++) {
        const e = this.heads[v][next[v]];
        if (this.capacity[e] > 0 && level[this.to[e]] === level[v] + 1) {
          found = e;
          break;
        }
      }
      if (found >= 0) {
        path.push(found);
        v = this.to[found];
        continue;
      }
      // Dead end: step back and skip the arc that led here.
      const last = path.pop();
      if (last === undefined) return 0;
      v = this.to[last ^ 1];
      next[v]++;
    }
    let flow = Infinity;
    for (const e of path) flow = Math.min(flow, this.capacity[e]);
    if (flow === Infinity) return Infinity;
    for (const e of path) {
      this.capacity[e] -= flow;
      this.capacity[e ^ 1] += flow;
    }
    return flow;
  }
}
