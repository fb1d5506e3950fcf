/**
 * Writes calls with bodies of a typed program (`call`, `cond`, `while_loop`, `scan`, `map`) as
 * local calls with bodies of local calls.
 */
import { internalError } from '../../errors.ts';
import { scanPositions } from '../../graph/control.ts';
import type { Arg, Graph, Node } from '../../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef } from '../../graph/value.ts';
import { type Emitter, type LocalType, ref } from '../program/emitter.ts';

/** A value of the program that is written: its name, or those of its members. */
export type Local = { readonly name: string } | { readonly items: readonly Local[] };

/** The place of a call, and the writer of its operands and bodies. */
interface ControlSite {
  readonly emit: Emitter;
  /** Local name of an operand. */
  readonly single: (name: string) => string;
  /** Local name of an operand that a body takes at a position, as the body has it typed. */
  readonly entering: (name: string, body: Graph, at: number) => string;
  /** Writes a body in the place of its call. */
  readonly inline: (body: Graph, operands: readonly Local[]) => readonly Local[];
  /**
   * Writes a body as a graph of its own.
   *
   * @param agreed how many of its first results must be what the call has them as
   */
  readonly body: (
    of: Graph,
    types: readonly LocalType[],
    agreed: number,
  ) => { readonly name: string; readonly types: readonly LocalType[] };
  /** Notes a call with the names of its bodies, and the names that the source has for them. */
  readonly called: (name: string, bodies: readonly string[], origins: readonly string[]) => void;
}

/** Writes calls with bodies: a plain call is inlined, others keep their bodies. */
export function eraseControl(graph: Graph, node: Node, site: ControlSite): Local | undefined {
  const { emit } = site;
  const { args, target } = node;
  const names = (at: number): string[] => {
    const arg: Arg | undefined = args[at];
    return arg !== undefined && isList(arg)
      ? arg.map((member) =>
          isRef(member) ? member.name : internal(`${node.name} takes a value that is no tensor`),
        )
      : [];
  };
  const list = (at: number): string[] => names(at).map(site.single);
  const body = (at: Arg | undefined): Graph => {
    const found = at !== undefined && isGraphRef(at) ? getOwn(graph.subgraphs, at.name) : undefined;
    return found ?? internal(`${node.name} has no body`);
  };
  const write = site.body;
  const typesOf = (values: readonly string[]): LocalType[] =>
    values.map((value) => emit.type(value));
  const call = (
    bodies: readonly string[],
    given: readonly Arg[],
    types: readonly LocalType[],
    origins: readonly string[],
  ): Local => {
    const made = emit.control(target, given, node.kwargs, node.name, types);
    site.called(made.name, bodies, origins);
    return { items: made.members.map((name): Local => ({ name })) };
  };
  const graphRef = (name: string): Arg => ({ kind: 'graph', name });
  switch (target) {
    case 'call':
      return {
        items: site.inline(
          body(args[0]),
          list(1).map((name) => ({ name })),
        ),
      };
    case 'cond':
    case 'case': {
      const [which] = args;
      if (!isRef(which)) throw internalError(`${node.name} decides by no value`);
      const branches = target === 'cond' ? args.slice(1, 3) : isList(args[1]) ? args[1] : [];
      const operands = list(target === 'cond' ? 3 : 2);
      const made = branches.map((branch) => write(body(branch), typesOf(operands), Infinity));
      const refs = made.map(({ name }) => graphRef(name));
      return call(
        made.map(({ name }) => name),
        [ref(site.single(which.name)), ...(target === 'cond' ? refs : [refs]), operands.map(ref)],
        made[0].types,
        branches.map((branch) => body(branch).name),
      );
    }
    case 'while_loop': {
      const step = body(args[1]);
      const carry = names(2).map((name, k) => site.entering(name, step, k));
      const captured = list(3);
      const made = [body(args[0]), step].map((of, b) =>
        write(of, typesOf([...carry, ...captured]), b === 0 ? 0 : carry.length),
      );
      return call(
        made.map(({ name }) => name),
        [...made.map(({ name }) => graphRef(name)), carry.map(ref), captured.map(ref)],
        made[1].types,
        [body(args[0]).name, step.name],
      );
    }
    case 'scan':
    case 'map':
    case 'map_impl': {
      const scans = target === 'scan';
      const at = scanPositions(target);
      const step = body(args[0]);
      const init =
        at.init === undefined ? [] : names(at.init).map((name, k) => site.entering(name, step, k));
      const [xs, captured] = [list(at.xs), list(at.captured)];
      const rows = typesOf(xs).map(({ dtype, shape }) => ({ dtype, shape: shape.slice(1) }));
      const made = write(step, [...typesOf(init), ...rows, ...typesOf(captured)], init.length);
      const length = xs.length > 0 ? emit.type(xs[0]).shape[0] : getOwn(node.kwargs, 'length');
      if (typeof length !== 'number') throw internalError(`${node.name} has no length`);
      const types = made.types.map(({ dtype, shape }, k): LocalType => ({
        dtype,
        shape: k < init.length ? shape : [length, ...shape],
      }));
      const operands: Arg[] = [init, xs, captured].map((names) => names.map(ref));
      return call(
        [made.name],
        [graphRef(made.name), ...(scans ? operands : operands.slice(1))],
        types,
        [step.name],
      );
    }
    default:
      return undefined;
  }
}

export function internal(message: string): never {
  throw internalError(message);
}
