import { DTYPE_BYTES } from '../../src/graph/types.ts';
import type { Prepared } from '../../src/plan/prepare.ts';

/**
 * An exact planner that shares nothing with the solver or the choice problem: it walks the program once and keeps, for
 * every combination of placements of the tensors that are still needed, the cheapest way to get there. Exhaustive over all
 * strategies; only fit for small programs, and for models without shared copies.
 */
export function cheapestByFrontier(prepared: Prepared, budgetBytes = Infinity): number {
  const { model } = prepared;
  const { graph, flow, strategies, redistributor, nodeSeconds } = model;
  const lastUse = new Int32Array(flow.values.length).fill(-1);
  graph.nodes.forEach((_, n) => flow.inputs[n].forEach((v) => (lastUse[v] = n)));
  const end = graph.nodes.length;
  const parameterOf = new Map<string, number>();
  graph.nodes.forEach((node, n) => {
    if (node.kind === 'placeholder' && node.meta.roleName !== undefined)
      parameterOf.set(node.meta.roleName, flow.results[n][0]);
  });
  const tangents = new Map<number, number>();
  graph.nodes.forEach((node, n) => {
    if (node.meta.role === 'tangent') tangents.set(node.meta.roleIndex ?? 0, flow.results[n][0]);
  });
  const demands = flow.outputs.flatMap(({ output, value }, k) => {
    if (value < 0) return [];
    const partner = output.role === 'output' ? tangents.get(output.index ?? k) : parameterOf.get(output.of ?? '');
    lastUse[value] = end;
    if (partner !== undefined) lastUse[partner] = end;
    return [{ value, partner }];
  });
  const prices = new Map<number, number>();
  const priceOf = (v: number, from: number, to: number): number => {
    const key = (v * 4096 + from) * 4096 + to;
    let price = prices.get(key);
    if (price === undefined) {
      const { meta } = flow.values[v];
      price = redistributor.seconds({ shape: meta.shape, itemBytes: DTYPE_BYTES[meta.dtype] }, from, to);
      prices.set(key, price);
    }
    return price;
  };

  // State: placements of live values (in order of `live`) and the bytes of parameters placed so far.
  interface State {
    readonly specs: readonly number[];
    readonly bytes: number;
    readonly seconds: number;
  }
  let live: number[] = [];
  let states: State[] = [{ specs: [], bytes: 0, seconds: 0 }];
  graph.nodes.forEach((_, n) => {
    const entry = strategies.nodes[n];
    if (entry === null) return;
    const { set } = entry;
    const width = set.inputCount + set.outputCount;
    const cost = nodeSeconds.get(entry.content)!;
    const state = model.stateBytes.get(n);
    const results = [...flow.results[n]];
    const kept = [
      ...live.map((v, i) => ({ v, at: i, result: -1 })),
      ...results.map((v, k) => ({ v, at: -1, result: k })),
    ].filter(({ v }) => v >= 0 && lastUse[v] > n);
    const next = new Map<string, State>();
    for (const s of states) {
      for (let a = 0; a < set.count; a++) {
        let seconds = s.seconds + cost.compute[a] + cost.internal[a];
        flow.inputs[n].forEach((v, i) => (seconds += priceOf(v, s.specs[live.indexOf(v)], set.specs[a * width + i])));
        if (!Number.isFinite(seconds)) continue;
        const bytes =
          s.bytes +
          (state === undefined ? 0 : state.localElements[a] * (state.parameter + state.gradient + state.optimizer));
        if (bytes > budgetBytes) continue;
        const specs = kept.map((k) => (k.at >= 0 ? s.specs[k.at] : set.specs[a * width + set.inputCount + k.result]));
        const key = budgetBytes === Infinity ? specs.join() : `${specs.join()}|${bytes}`;
        const known = next.get(key);
        if (known === undefined || seconds < known.seconds) next.set(key, { specs, bytes, seconds });
      }
    }
    live = kept.map((k) => k.v);
    states = [...next.values()];
  });
  let best = Infinity;
  for (const s of states) {
    let { seconds } = s;
    for (const { value, partner } of demands) {
      const from = s.specs[live.indexOf(value)];
      if (partner !== undefined) seconds += priceOf(value, from, s.specs[live.indexOf(partner)]);
      else {
        const use = model.uses.find((u) => u.at.kind === 'output' && u.value === value)!;
        seconds += Math.min(...Array.from(use.demands.specs, (to) => priceOf(value, from, to)));
      }
    }
    best = Math.min(best, seconds);
  }
  return best;
}
