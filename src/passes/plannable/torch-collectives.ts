/**
 * Writes the functional collectives of PyTorch in the words of StableHLO, which regions of
 * per-device code are read in. Gathers and scatters are on dim 0; the name of the group is that of
 * the mesh axes it goes over. Source: `torch.distributed._functional_collectives` of PyTorch 2.13.
 */
import { ShardwrightError } from '../../errors.ts';
import { NameSet } from '../../graph/names.ts';
import type { Arg, Graph, Node, ValueType } from '../../graph/types.ts';
import { isList, isRef, mapOperands, ref } from '../../graph/value.ts';

const PREFIX = /^_?c10d_functional\.(\w+?)_?(_coalesced)?\.default$/;

/** Tells whether a target is a collective of PyTorch, or the wait for one. */
export function isTorchCollective(target: string): boolean {
  return PREFIX.test(target);
}

/** The members of the mesh axes that a collective's group is. */
type RanksOf = (node: Node, group: string) => number;

/** The meaning of a collective: its name in StableHLO, and its keywords. */
interface Meaning {
  readonly name: string;
  readonly kwargs: Readonly<Record<string, Arg>>;
  /** The divisor of the result: a mean adds up first. */
  readonly by?: number;
}

/**
 * The body with its collectives under the names of StableHLO, one for each value.
 *
 * @throws E_UNSUPPORTED, with the node, for one that has no such name
 */
export function withNeutralCollectives(body: Graph, ranksOf: RanksOf): Graph {
  if (!body.nodes.some(({ target }) => isTorchCollective(target))) return body;
  const names = new NameSet(body.nodes.map(({ name }) => name));
  const renamed = new Map<string, string>();
  const members = new Map<string, readonly string[]>();
  const nodes: Node[] = [];
  const write = (node: Node, x: Arg | undefined, type: ValueType, name: string): string => {
    const { name: target, kwargs, by } = meaningOf(node, ranksOf);
    const meta = { ...node.meta, original: node.target };
    const own = { name, kind: 'call', target: `stablehlo.${target}`, kwargs, type, meta } as const;
    nodes.push({ ...own, args: [x ?? null] });
    if (by === undefined) return name;
    const divided = names.take(`${name}_mean`);
    const args = [ref(name), by];
    nodes.push({ ...own, name: divided, target: 'aten.div.Scalar', args, kwargs: {} });
    return divided;
  };
  for (const given of body.nodes) {
    const node = mapOperands(given, (name) => renamed.get(name) ?? name);
    const [first, k] = node.args;
    const read =
      node.target === 'operator.getitem' && isRef(first) ? members.get(first.name) : undefined;
    const [, kind, coalesced] = PREFIX.exec(node.target) ?? [];
    if (read !== undefined) renamed.set(node.name, read[Number(k)]);
    else if (kind === undefined) nodes.push(node);
    else if (kind === 'wait_tensor') renamed.set(node.name, isRef(first) ? first.name : node.name);
    else if (coalesced === undefined)
      renamed.set(node.name, write(node, first, node.type, node.name));
    else {
      const items = node.type.kind === 'tuple' ? node.type.items : [];
      const list = first !== undefined && isList(first) ? first : [];
      members.set(
        node.name,
        list.map((x, i) => write(node, x, items[i], names.take(node.name))),
      );
    }
  }
  const outputs = body.outputs.map((output) => ({
    ...output,
    value: output.value === null ? null : (renamed.get(output.value) ?? output.value),
  }));
  return { ...body, nodes, outputs };
}

function meaningOf(node: Node, ranksOf: RanksOf): Meaning {
  const [, kind = ''] = PREFIX.exec(node.target) ?? [];
  const { args } = node;
  const group = args.at(-1);
  if (typeof group !== 'string') throw refused(node, 'it names no group', 'print the graph again');
  const ranks = ranksOf(node, group);
  const axes = group.split(',');
  const reduced = (): Pick<Meaning, 'by'> & { readonly reducer: string } => {
    const [, given] = args;
    const word = typeof given === 'string' ? given : '';
    if (word === 'avg') return { reducer: 'add', by: ranks };
    return { reducer: word === 'sum' ? 'add' : word };
  };
  switch (kind) {
    case 'all_reduce': {
      const { reducer, ...mean } = reduced();
      return { name: 'all_reduce', kwargs: { reducer, axes }, ...mean };
    }
    case 'all_gather_into_tensor':
      return { name: 'all_gather', kwargs: { all_gather_dim: 0, axes } };
    case 'reduce_scatter_tensor': {
      const { reducer, ...mean } = reduced();
      const kwargs = { reducer, scatter_dimension: 0, axes };
      return { name: 'reduce_scatter', kwargs, ...mean };
    }
    case 'all_to_all_single': {
      const rows = [args[1], args[2]].flatMap((list) =>
        list !== undefined && isList(list) ? list.map(Number) : [],
      );
      if (new Set(rows).size > 1)
        throw refused(
          node,
          'its ranks exchange unequal numbers of rows',
          'pad the parts to one capacity',
        );
      return { name: 'all_to_all_rows', kwargs: { axes } };
    }
    default:
      throw refused(
        node,
        'no verb says it',
        'write it with all_reduce, all_gather_into_tensor, reduce_scatter_tensor or ' +
          'all_to_all_single',
      );
  }
}

function refused(node: Node, what: string, hint: string): ShardwrightError {
  return new ShardwrightError(
    'E_UNSUPPORTED',
    `${node.target} (%${node.name}) is not planned: ${what}`,
    { node: node.name, hint },
  );
}
