/**
 * Calls with bodies of a typed program (`call`, `cond`, `while_loop`, `scan`, `map`). In: one call,
 * and how its operands and bodies are written. Out: the local call, with bodies of local calls.
 */
import { internalError } from '../../errors.ts';
import { scanPositions } from '../../graph/control.ts';
import type { Arg, Graph, Node } from '../../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef } from '../../graph/value.ts';
import { type Emitter, type LocalType, ref } from '../program/emitter.ts';

/** A value of the program that is written: its name, or those of its members. */
export type Local = { readonly name: string } | { readonly items: readonly Local[] };

/** Where a call stands, and how the writer of the program writes what it is made of. */
interface ControlSite {
  readonly emit: Emitter;
  /** Local name of an operand. */
  readonly single: (name: string) => string;
  /** Writes a body in the place of its call. */
  readonly inline: (body: Graph, operands: readonly Local[]) => readonly Local[];
  /** Writes a body as a graph of its own. */
  readonly body: (
    of: Graph,
    types: readonly LocalType[],
  ) => { readonly name: string; readonly types: readonly LocalType[] };
  /** Notes a call with the names of its bodies, and the names that the source has for them. */
  readonly called: (name: string, bodies: readonly string[], origins: readonly string[]) => void;
}

/** Calls with bodies: a plain call stands written out, others keep their bodies. */
export function eraseControl(graph: Graph, node: Node, site: ControlSite): Local | undefined {
  const { emit } = site;
  const { args, target } = node;
  const list = (at: number): string[] => {
    const arg: Arg | undefined = args[at];
    return arg !== undefined && isList(arg)
      ? arg.map((member) =>
          isRef(member)
            ? site.single(member.name)
            : internal(`${node.name} takes a value that is no tensor`),
        )
      : [];
  };
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
    case 'cond': {
      const test = args[0];
      if (!isRef(test)) throw internalError(`${node.name} decides by no value`);
      const operands = list(3);
      const made = [body(args[1]), body(args[2])].map((of) => write(of, typesOf(operands)));
      return call(
        made.map(({ name }) => name),
        [ref(site.single(test.name)), ...made.map(({ name }) => graphRef(name)), operands.map(ref)],
        made[0].types,
        [body(args[1]).name, body(args[2]).name],
      );
    }
    case 'while_loop': {
      const [carry, captured] = [list(2), list(3)];
      const made = [body(args[0]), body(args[1])].map((of) =>
        write(of, typesOf([...carry, ...captured])),
      );
      return call(
        made.map(({ name }) => name),
        [...made.map(({ name }) => graphRef(name)), carry.map(ref), captured.map(ref)],
        made[1].types,
        [body(args[0]).name, body(args[1]).name],
      );
    }
    case 'scan':
    case 'map':
    case 'map_impl': {
      const scans = target === 'scan';
      const at = scanPositions(target);
      const [init, xs, captured] = [
        at.init === undefined ? [] : list(at.init),
        list(at.xs),
        list(at.captured),
      ];
      const rows = typesOf(xs).map(({ dtype, shape }) => ({ dtype, shape: shape.slice(1) }));
      const step = body(args[0]);
      const made = write(step, [...typesOf(init), ...rows, ...typesOf(captured)]);
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
