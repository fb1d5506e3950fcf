import { ALL, type AlpaCosts, bytesOf, type Move } from './alpa-costs.ts';
import type { Split } from './alpa-scatter.ts';
import type { Value } from './alpa-values.ts';
import type { Hlo, Instruction } from './hlo.ts';

export type Kind = 'all-reduce' | 'reduce-scatter' | Move['kind'];

/** One collective that a program under a plan needs, before any are combined. */
export interface Collective {
  readonly kind: Kind;
  readonly axis: number;
  /** Dim that is gathered, scattered or given up. */
  readonly dim: number;
  /** Bytes of the whole value. */
  readonly bytes: number;
  /** Length of the longest chain of collectives that have to wait for it. */
  readonly before: number;
  /** It waits for no other. */
  readonly first: boolean;
  /** Instruction whose value it works on. */
  readonly of: Instruction;
}

type Own = Pick<Collective, 'kind' | 'axis' | 'dim'>;

/**
 * The collectives of a program under a plan; `split` tells what the reduce-scatter pass made of it.
 */
export function collectivesOf(
  hlo: Hlo,
  values: readonly Value[],
  costs: AlpaCosts,
  split?: Split,
): Collective[] {
  /** What an instruction does to its own value, last first. */
  const ownOf = (ins: Instruction): Own[] => {
    const { gathered, scattered } = split?.made.get(ins.id) ?? {};
    const sums = [...(split?.summed.get(ins.id) ?? [])];
    if (scattered === undefined && !twofold(ins, values)) sums.push(...(values[ins.id].sums ?? []));
    return [
      ...(gathered ?? []).map((g) => ({ kind: 'all-gather' as const, ...g })),
      ...(scattered === undefined ? [] : [{ kind: 'reduce-scatter' as const, ...scattered }]),
      ...sums
        .filter((a) => costs.size(a) > 1)
        .map((axis) => ({ kind: 'all-reduce' as const, axis, dim: 0 })),
    ];
  };
  /**
   * What a reader needs of an operand. Between values that the pass has cut the same way it needs
   * nothing.
   */
  const movesOf = (reader: Instruction, position: number): Move[] => {
    const operand = reader.operands[position];
    const cut = split?.cut.has(reader.id) === true || split?.cut.has(operand.id) === true;
    if (cut || reader.op.kind === 'tuple') return [];
    return costs.moves(
      operand.shape,
      values[operand.id].spec,
      values[reader.id].operands[position],
    );
  };

  const ahead: number[] = [];
  const own = hlo.instructions.map(ownOf);
  for (const ins of hlo.instructions) {
    const given = ins.operands.map((o, p) => ahead[o.id] + movesOf(ins, p).length);
    if (ins.op.kind === 'elementwise' && ins.op.waitsFor !== undefined)
      given.push(ahead[ins.op.waitsFor.id]);
    ahead.push(Math.max(0, ...given) + own[ins.id].length);
  }
  const found: Collective[] = [];
  const behind = hlo.instructions.map(() => 0);
  const wait = (id: number, chain: number): void => void (behind[id] = Math.max(behind[id], chain));
  /** Moves that readers ask for: one serves all that ask for the same spec. */
  const asked = hlo.instructions.map(
    () => new Map<string, { readonly moves: readonly Move[]; before: number }>(),
  );
  for (const ins of [...hlo.instructions].reverse()) {
    const of = { bytes: bytesOf(ins.shape), of: ins };
    for (const { moves, before } of asked[ins.id].values()) {
      moves.forEach(({ kind, axis, dim }, i) => {
        found.push({
          kind,
          axis,
          dim,
          ...of,
          before: before + moves.length - 1 - i,
          first: ahead[ins.id] + i === 0,
        });
      });
      wait(ins.id, before + moves.length);
    }
    own[ins.id].forEach((c, i) => {
      found.push({ ...c, ...of, before: behind[ins.id]++, first: ahead[ins.id] - 1 - i === 0 });
    });
    if (ins.op.kind === 'elementwise' && ins.op.waitsFor !== undefined)
      wait(ins.op.waitsFor.id, behind[ins.id]);
    ins.operands.forEach((operand, p) => {
      const moves = movesOf(ins, p);
      if (moves.length === 0) {
        wait(operand.id, behind[ins.id]);
        return;
      }
      const key = String(values[ins.id].operands[p]);
      const { before = 0 } = asked[operand.id].get(key) ?? {};
      asked[operand.id].set(key, { moves, before: Math.max(before, behind[ins.id]) });
    });
  }
  return found;
}

/**
 * A product planned with an all-reduce whose operands turn out whole is computed everywhere
 * instead.
 */
export function twofold(ins: Instruction, values: readonly Value[]): boolean {
  if (ins.op.kind !== 'dot' && ins.op.kind !== 'conv') return false;
  const pair = ins.op.kind === 'dot' ? ins.op.contract[0] : ins.op.contract;
  return pair !== undefined && ins.operands.every((o, side) => values[o.id].spec[pair[side]] < 0);
}

/**
 * Numbers of collectives after those of one kind, axis and dim have become one where none has to
 * wait for another, up to `threshold` bytes each. Each is put as late as it may be; one that waits
 * for none joins an earlier one. All-to-alls stay as they are; collectives of scalars are left out.
 */
export function countsOf(
  collectives: readonly Collective[],
  threshold = Infinity,
): Record<Kind, number> {
  const counts: Record<Kind, number> = {
    'all-reduce': 0,
    'reduce-scatter': 0,
    'all-gather': 0,
    'all-to-all': 0,
  };
  const open = new Map<string, { before: number; bytes: number }>();
  const earliest = [...collectives].sort((a, b) => b.before - a.before);
  for (const { kind, axis, dim, bytes, before, first, of } of earliest) {
    if (of.shape.length === 0) continue;
    const key = [kind, axis === ALL ? 'all' : axis, kind === 'all-reduce' ? '' : dim].join();
    const group = open.get(key);
    const joins =
      group !== undefined && (group.before === before || first) && group.bytes + bytes <= threshold;
    if (joins && kind !== 'all-to-all') group.bytes += bytes;
    else {
      open.set(key, { before, bytes });
      counts[kind]++;
    }
  }
  return counts;
}
