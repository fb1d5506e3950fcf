/**
 * Gives operators of an FX text the bodies that the text has for them: a nested class under the
 * name of the operator, `mine_gate` for calls of `torch.ops.mine.gate.default`, takes its tensors
 * and returns its results. Types, rules, work and numbers of the call follow from the body.
 */
import { NameSet } from '../../graph/names.ts';
import type { Arg } from '../../graph/types.ts';
import type { DraftRef, FxClass, FxNode, Places } from './record.ts';

/** A text whose operators with bodies are calls of them, and the names of these operators. */
interface OwnBodies {
  readonly source: FxClass;
  readonly operators: readonly string[];
}

/** @throws E_TYPE for a call that hands its body something else than its inputs */
export function withOwnBodies(source: FxClass, places: Places): OwnBodies {
  const bodies = new Map(source.classes.map((body) => [body.name, body]));
  const operators = new Set<string>();
  const names = new NameSet([...source.inputs, ...source.nodes].map(({ name }) => name));
  const nodes = source.nodes.flatMap((node): FxNode[] => {
    const body = node.kind === 'call' ? bodyOf(node.target, bodies) : undefined;
    if (body === undefined) return [node];
    operators.add(node.target);
    return called(node, body, names, places);
  });
  return {
    source: operators.size === 0 ? source : { ...source, nodes },
    operators: [...operators],
  };
}

/** The class of `mine.gate.default`: `mine_gate_default`, or `mine_gate`. */
function bodyOf(target: string, bodies: ReadonlyMap<string, FxClass>): FxClass | undefined {
  if (bodies.size === 0 || !target.includes('.')) return undefined;
  const whole = target.replaceAll('.', '_');
  return bodies.get(whole) ?? bodies.get(whole.replace(/_default$/, ''));
}

function called(node: FxNode, body: FxClass, names: NameSet, places: Places): FxNode[] {
  const given: readonly Arg[] = [...node.args, ...Object.values(node.kwargs)];
  if (given.length !== body.inputs.length || !given.every(isTensorReference))
    throw places.error(
      'E_TYPE',
      `${node.target} is called with ${given.length} arguments, and its class ${body.name} takes ` +
        `${body.inputs.length} tensors`,
      node.offset,
      'write a class for each set of other arguments, with their values in it',
      node.name,
    );
  const graph: DraftRef = { kind: 'graph', name: body.name };
  const args: Arg[] = [graph, [...given]];
  if (body.returns.length !== 1) return [{ ...node, target: 'call', args, kwargs: {} }];
  // A call returns all results of its body; an operator with one returns that.
  const name = names.take(`${node.name}_results`);
  const ref: DraftRef = { kind: 'value', name };
  const call: FxNode = { ...node, name, target: 'call', args, kwargs: {}, type: undefined, ref };
  return [call, { ...node, target: 'operator.getitem', args: [ref, 0], kwargs: {} }];
}

function isTensorReference(arg: Arg): boolean {
  return typeof arg === 'object' && arg !== null && 'kind' in arg && arg.kind === 'value';
}
