import { movedType } from '../../src/cost/redistribution/pricing.ts';
import { DTYPE_BYTES } from '../../src/graph/types.ts';
import { elements } from '../../src/ops/record/record.ts';
import type { Prepared } from '../../src/plan/prepare/prepared.ts';

/**
 * Every trade of seconds against peak memory that placements allow, by walking the program once
 * with all states: an exact planner that shares nothing with the solver, the rows or the search.
 * Only fit for small programs without shared copies.
 */

/** What is known of one way to get to a point of the program. */
interface State {
  /** By value that is still needed: its placement and its storage. */
  readonly specs: ReadonlyMap<number, number>;
  readonly storage: ReadonlyMap<number, number>;
  /** Storages that some value needs, with their bytes. */
  readonly bytes: ReadonlyMap<number, number>;
  /** What stays to the end. */
  readonly base: number;
  /** By node that is recomputed later: how it was placed. */
  readonly placed: ReadonlyMap<string, string>;
  readonly seconds: number;
  readonly peak: number;
}

/**
 * @param originalOf first run by the name of its second: recomputed nodes are placed as first ones
 * @param fixed placements of inputs by name
 */
export function paretoByWalking(
  prepared: Prepared,
  originalOf: ReadonlyMap<string, string>,
  fixed: ReadonlyMap<string, string> = new Map(),
): [seconds: number, peakBytes: number][] {
  const { model } = prepared;
  const { table } = model;
  const { graph, flow, strategies, redistributor, nodeSeconds, space } = model;
  if (model.copies.length > 0) throw new Error('shared copies are not walked');
  const lastUse = new Int32Array(flow.values.length).fill(-1);
  graph.nodes.forEach(
    (_, n) => flow.alias[n] < 0 && flow.inputs[n].forEach((v) => (lastUse[v] = n)),
  );
  const parameterOf = new Map<string, number>();
  const tangents = new Map<number, number>();
  graph.nodes.forEach((node, n) => {
    if (node.meta.roleName !== undefined && node.kind === 'placeholder')
      parameterOf.set(node.meta.roleName, flow.results[n][0]);
    if (node.meta.role === 'tangent') tangents.set(node.meta.roleIndex ?? 0, flow.results[n][0]);
  });
  const always = new Set<number>([...parameterOf.values(), ...tangents.values()]);
  const outputs = new Map<number, { partner: number | undefined; specs: readonly number[] }[]>();
  flow.outputs.forEach(({ output, value }, k) => {
    if (value < 0) return;
    const partner =
      output.role === 'output' ? tangents.get(output.index ?? k) : parameterOf.get(output.of ?? '');
    const use = model.uses.find((u) => u.at.kind === 'output' && u.at.output === k);
    outputs.set(value, [
      ...(outputs.get(value) ?? []),
      { partner, specs: partner === undefined ? [...use!.demands.specs] : [] },
    ]);
  });
  const again = new Set(originalOf.values());
  const local = (v: number, spec: number): number =>
    elements(
      spec < 0 ? flow.values[v].meta.shape : space.localShape(spec, flow.values[v].meta.shape),
    ) * DTYPE_BYTES[flow.values[v].meta.dtype];
  let fresh = 0;
  /** Bytes of the storage that only this value needs. */
  const freedBy = (
    v: number,
    storage: ReadonlyMap<number, number>,
    bytes: ReadonlyMap<number, number>,
  ): number => {
    const own = storage.get(v)!;
    return [...storage].some(([u, b]) => u !== v && b === own) ? 0 : (bytes.get(own) ?? 0);
  };

  /**
   * Takes a value to a placement: seconds, the peak on the way, and the bytes of what is there in
   * the end beside the value.
   */
  const carry = (
    v: number,
    from: number,
    to: number,
    live: number,
    freed: number,
  ): { seconds: number; peak: number; made: number } => {
    if (from === to) return { seconds: 0, peak: 0, made: 0 };
    const type = movedType(flow.values[v]);
    const steps = (redistributor.plan(type, from, to)?.steps ?? []).filter(
      (s) => s.kind !== 'relabel' && !(s.kind === 'slice' && s.bytes === 0) && s.groupSize !== 1,
    );
    let [peak, made] = [0, 0];
    for (const { to: after, pieceBytes } of steps) {
      const result = local(v, after);
      // The first step holds the value itself; from then on it is free where nothing needs it
      // later. A copy holds the pieces that it lays in place.
      for (const next of pieceBytes === undefined ? [result] : [pieceBytes, result]) {
        peak = Math.max(peak, made === 0 ? live + next : live - freed + made + next);
        made = next;
      }
    }
    return { seconds: redistributor.seconds(type, from, to), peak, made };
  };

  let states: State[] = [
    {
      specs: new Map(),
      storage: new Map(),
      bytes: new Map(),
      base: 0,
      placed: new Map(),
      seconds: 0,
      peak: 0,
    },
  ];
  graph.nodes.forEach((node, n) => {
    const entry = strategies.nodes[n];
    if (entry === null || flow.alias[n] >= 0) return;
    const { set } = entry;
    const width = set.inputCount + set.outputCount;
    const cost = nodeSeconds.get(entry.content)!;
    const isView = table.get(node.target)?.cls === 'view' && flow.inputs[n].length === 1;
    const next = new Map<string, State[]>();
    for (const s of states)
      for (let a = 0; a < set.count; a++) {
        const row = [...set.specs.subarray(a * width, (a + 1) * width)];
        const only = fixed.get(node.name);
        if (only !== undefined && space.text(row[0]) !== only) continue;
        const original = originalOf.get(node.name);
        if (original !== undefined && s.placed.get(original) !== row.join()) continue;
        let seconds = s.seconds + cost.compute[a] + cost.internal[a];
        let { peak, base } = s;
        const specs = new Map(s.specs);
        const storage = new Map(s.storage);
        const bytes = new Map(s.bytes);
        const sum = (): number => base + [...bytes.values()].reduce((x, y) => x + y, 0);
        /** Forgets values that nothing needs from here on, and storages that only they had. */
        const forget = (needed: (v: number) => boolean): void => {
          for (const v of [...specs.keys()])
            if (!needed(v) && !always.has(v)) {
              specs.delete(v);
              storage.delete(v);
            }
          const used = new Set(storage.values());
          for (const b of [...bytes.keys()]) if (!used.has(b)) bytes.delete(b);
        };
        if (node.kind === 'placeholder') {
          const [v] = flow.results[n];
          const state = model.stateBytes.get(n);
          base +=
            state === undefined
              ? local(v, row[0])
              : state.localElements[a] * (state.parameter + state.optimizer);
          specs.set(v, row[0]);
          storage.set(v, ++fresh);
        } else {
          // Inputs are brought one after another; what is brought stays for the call.
          let held = 0;
          const inputs = [...flow.inputs[n]];
          let viewed = -1;
          let viewedBytes = 0;
          inputs.forEach((v, i) => {
            const from = specs.get(v)!;
            const own = storage.get(v)!;
            const free =
              lastUse[v] > n || inputs.indexOf(v, i + 1) >= 0 ? 0 : freedBy(v, storage, bytes);
            const { seconds: price, peak: way, made } = carry(v, from, row[i], sum() + held, free);
            seconds += price;
            peak = Math.max(peak, way);
            viewed = own;
            viewedBytes = made;
            held += made;
            // A value that was brought elsewhere is free when nobody reads it later, neither here
            // nor after.
            if (made > 0 && free > 0) forget((u) => u !== v);
          });
          if (!Number.isFinite(seconds)) continue;
          const results = [...flow.results[n]]
            .map((v, k) => ({ v, spec: row[set.inputCount + k] }))
            .filter(({ v }) => v >= 0);
          const made = isView ? 0 : results.reduce((x, { v, spec }) => x + local(v, spec), 0);
          peak = Math.max(peak, sum() + held + made);
          for (const { v, spec } of results) {
            specs.set(v, spec);
            const b = isView && viewedBytes === 0 ? viewed : ++fresh;
            storage.set(v, b);
            if (isView ? viewedBytes > 0 : local(v, spec) > 0)
              bytes.set(b, isView ? viewedBytes : local(v, spec));
          }
          forget((u) => lastUse[u] > n || results.some(({ v }) => v === u));
        }
        const placed = again.has(node.name)
          ? new Map(s.placed).set(node.name, row.join())
          : s.placed;
        // Outputs are brought to where they are wanted as soon as they are made, and stay.
        let ends: State[] = [{ specs, storage, bytes, base, placed, seconds, peak }];
        for (const v of flow.results[n])
          for (const { partner, specs: free } of outputs.get(v) ?? [])
            ends = ends.flatMap((e) =>
              (partner === undefined ? free : [e.specs.get(partner)!]).flatMap((to) => {
                const live = e.base + [...e.bytes.values()].reduce((x, y) => x + y, 0);
                const free = lastUse[v] > n ? 0 : freedBy(v, e.storage, e.bytes);
                const {
                  seconds: price,
                  peak: way,
                  made,
                } = carry(v, e.specs.get(v)!, to, live, free);
                if (!Number.isFinite(price)) return [];
                const kept = new Map(e.bytes);
                const own = e.storage.get(v)!;
                let more = made;
                if (made === 0) {
                  more = kept.get(own) ?? 0;
                  kept.delete(own);
                }
                return [
                  {
                    ...e,
                    bytes: kept,
                    base: e.base + more,
                    seconds: e.seconds + price,
                    peak: Math.max(e.peak, way),
                  },
                ];
              }),
            );
        for (const e of ends) {
          const left = {
            specs: new Map(e.specs),
            storage: new Map(e.storage),
            bytes: new Map(e.bytes),
          };
          for (const v of [...left.specs.keys()])
            if (lastUse[v] <= n && !always.has(v)) {
              left.specs.delete(v);
              left.storage.delete(v);
            }
          const used = new Set(left.storage.values());
          for (const b of [...left.bytes.keys()]) if (!used.has(b)) left.bytes.delete(b);
          const end = { ...e, ...left };
          const order = new Map<number, number>();
          const at = (v: number): string => {
            const b = end.storage.get(v)!;
            if (!order.has(b)) order.set(b, order.size);
            return `${v}:${end.specs.get(v)}:${order.get(b)}:${end.bytes.get(b) ?? 0}`;
          };
          const key = `${[...end.specs.keys()]
            .sort((x, y) => x - y)
            .map(at)
            .join()}|${end.base}|${[...end.placed].join(';')}`;
          const list = next.get(key) ?? [];
          if (list.some((o) => o.seconds <= end.seconds && o.peak <= end.peak)) continue;
          next.set(key, [...list.filter((o) => o.seconds < end.seconds || o.peak < end.peak), end]);
        }
      }
    states = [...next.values()].flat();
  });
  return undominated(states.map((s) => [s.seconds, s.peak]));
}

/** Trades that no other beats or equals in both, by rising seconds. */
export function undominated(all: readonly [number, number][]): [number, number][] {
  const out: [number, number][] = [];
  for (const [seconds, peak] of [...all].sort((a, b) => a[0] - b[0] || a[1] - b[1]))
    if (peak < (out.at(-1)?.[1] ?? Infinity)) out.push([seconds, peak]);
  return out;
}
