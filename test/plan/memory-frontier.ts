import { movedType } from '../../src/cost/redistribution/pricing.ts';
import type { Prepared } from '../../src/plan/prepare/prepared.ts';

/**
 * An exact planner that shares nothing with the solver or the choice problem: it walks the program
 * once and keeps, for every combination of placements of the tensors that are still needed, the
 * cheapest way to get there. Exhaustive over all strategies; only fit for small programs, and for
 * models without shared copies.
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
    const partner =
      output.role === 'output' ? tangents.get(output.index ?? k) : parameterOf.get(output.of ?? '');
    lastUse[value] = end;
    if (partner !== undefined) lastUse[partner] = end;
    return [{ value, partner }];
  });
  const prices = new Map<number, number>();
  const priceOf = (v: number, from: number, to: number): number => {
    const key = (v * 4096 + from) * 4096 + to;
    let price = prices.get(key);
    if (price === undefined) {
      price = redistributor.seconds(movedType(flow.values[v]), from, to);
      prices.set(key, price);
    }
    return price;
  };

  // Seconds of the cheapest way to every combination of placements of the live values and, under a
  // budget, of the bytes of the parameters placed so far: one number each, the last axis the
  // fastest.
  let live: { readonly v: number; readonly specs: readonly number[] }[] = [];
  let totals = [0];
  let cheapest = new Float64Array([0]);
  graph.nodes.forEach((_, n) => {
    const entry = strategies.nodes[n];
    if (entry === null) return;
    const { set } = entry;
    const width = set.inputCount + set.outputCount;
    const cost = nodeSeconds.get(entry.content)!;
    const own = Float64Array.from(
      { length: set.count },
      (_, a) => cost.compute[a] + cost.internal[a],
    );
    const state = model.stateBytes.get(n);
    const added = Array.from({ length: set.count }, (_, a) =>
      state === undefined || budgetBytes === Infinity
        ? 0
        : state.localElements[a] * (state.parameter + state.gradient + state.optimizer),
    );
    const resultSpecs = (k: number): number[] =>
      Array.from({ length: set.count }, (_, a) => set.specs[a * width + set.inputCount + k]);

    // The axes after this node: live values that are needed later, then its results.
    const kept = [
      ...live.map(({ v, specs }, at) => ({ v, specs, at, result: -1 })),
      ...Array.from(flow.results[n], (v, k) => ({
        v,
        specs: [...new Set(resultSpecs(k))],
        at: -1,
        result: k,
      })),
    ].filter(({ v }) => v >= 0 && lastUse[v] > n);
    const sums = new Set(totals.flatMap((total) => added.map((bytes) => total + bytes)));
    const nextTotals = [...sums].filter((total) => total <= budgetBytes);
    const strideOf = new Int32Array(live.length);
    const offset = new Int32Array(set.count);
    let size = 1;
    for (const { specs, at, result } of kept.toReversed()) {
      if (at >= 0) strideOf[at] = size;
      else resultSpecs(result).forEach((spec, a) => (offset[a] += specs.indexOf(spec) * size));
      size *= specs.length;
    }
    // Seconds that each strategy waits for an input that comes with each of its placements.
    const sources = Array.from(flow.inputs[n], (v, i) => {
      const at = live.findIndex((axis) => axis.v === v);
      const waits = live[at].specs.map((from) =>
        Float64Array.from({ length: set.count }, (_, a) =>
          priceOf(v, from, set.specs[a * width + i]),
        ),
      );
      return { at, waits };
    });

    const next = new Float64Array(nextTotals.length * size).fill(Infinity);
    const digits = new Int32Array(live.length);
    const seconds = new Float64Array(set.count);
    const states = cheapest.length / totals.length;
    totals.forEach((total, t) => {
      const start = added.map((bytes) => nextTotals.indexOf(total + bytes) * size);
      let base = 0;
      for (let s = 0; s < states; s++) {
        const before = cheapest[t * states + s];
        if (before < Infinity) {
          for (let a = 0; a < set.count; a++) seconds[a] = before + own[a];
          for (const { at, waits } of sources) {
            const wait = waits[digits[at]];
            for (let a = 0; a < set.count; a++) seconds[a] += wait[a];
          }
          for (let a = 0; a < set.count; a++) {
            const to = start[a] + base + offset[a];
            if (start[a] >= 0 && seconds[a] < next[to]) next[to] = seconds[a];
          }
        }
        // The next combination, as an odometer counts; after the last one every digit is 0 again.
        for (let at = live.length - 1; at >= 0; at--) {
          base += strideOf[at];
          if (++digits[at] < live[at].specs.length) break;
          base -= digits[at] * strideOf[at];
          digits[at] = 0;
        }
      }
    });
    live = kept.map(({ v, specs }) => ({ v, specs }));
    totals = nextTotals;
    cheapest = next;
  });

  let best = Infinity;
  const states = cheapest.length / totals.length;
  const stride = live.map((_, at) =>
    live.slice(at + 1).reduce((size, { specs }) => size * specs.length, 1),
  );
  cheapest.forEach((before, s) => {
    const placed = (v: number): number => {
      const at = live.findIndex((axis) => axis.v === v);
      const { specs } = live[at];
      return specs[Math.floor((s % states) / stride[at]) % specs.length];
    };
    let seconds = before;
    for (const { value, partner } of demands) {
      // The cheapest is at least this.
      if (seconds >= best) return;
      const from = placed(value);
      if (partner !== undefined) seconds += priceOf(value, from, placed(partner));
      else {
        const use = model.uses.find((u) => u.at.kind === 'output' && u.value === value)!;
        seconds += Math.min(...Array.from(use.demands.specs, (to) => priceOf(value, from, to)));
      }
    }
    best = Math.min(best, seconds);
  });
  return best;
}
