/**
 * Writes calls with bodies of a typed program (`call`, `cond`, `while_loop`, `scan`, `map`) as
 * local calls with bodies of local calls.
 */
import { internalError } from '../../errors.ts';
import { scanPositions } from '../../graph/control.ts';
import type { Arg, Graph, Node } from '../../graph/types.ts';
import { getOwn, isGraphRef, isList, isRef, ref } from '../../graph/value.ts';
import { type Emitter, type LocalType } from '../program/emitter.ts';

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
  const call = new BodiedCall(graph, node, site);
  switch (node.target) {
    case 'call':
      return call.inlined();
    case 'cond':
      return call.branches(node.args.slice(1, 3), call.locals(3));
    case 'case': {
      const branches: Arg | undefined = node.args[1];
      return call.branches(isList(branches) ? branches : [], call.locals(2));
    }
    case 'while_loop':
      return call.whileLoop();
    case 'scan':
    case 'map':
    case 'map_impl':
      return call.scan();
    default:
      return undefined;
  }
}

/** A call with bodies, and how each kind of it is written. */
class BodiedCall {
  constructor(
    private readonly graph: Graph,
    private readonly node: Node,
    private readonly site: ControlSite,
  ) {}

  /** Local names of the operands in a list. */
  locals(at: number): string[] {
    return this.names(at).map(this.site.single);
  }

  inlined(): Local {
    const operands = this.locals(1).map((name) => ({ name }));
    return { items: this.site.inline(this.body(this.node.args[0]), operands) };
  }

  branches(branches: readonly Arg[], operands: readonly string[]): Local {
    const { site, node } = this;
    const [which] = node.args;
    if (!isRef(which)) throw internalError(`${node.name} decides by no value`);
    const made = branches.map((branch) =>
      site.body(this.body(branch), this.typesOf(operands), Infinity),
    );
    const refs = made.map(({ name }) => graphRef(name));
    return this.write(
      made.map(({ name }) => name),
      branches.map((branch) => this.body(branch).name),
      [
        ref(site.single(which.name)),
        ...(node.target === 'cond' ? refs : [refs]),
        operands.map(ref),
      ],
      made[0].types,
    );
  }

  whileLoop(): Local {
    const { site } = this;
    const { args } = this.node;
    const step = this.body(args[1]);
    const carry = this.names(2).map((name, k) => site.entering(name, step, k));
    const captured = this.locals(3);
    const made = [this.body(args[0]), step].map((of, b) =>
      site.body(of, this.typesOf([...carry, ...captured]), b === 0 ? 0 : carry.length),
    );
    return this.write(
      made.map(({ name }) => name),
      [this.body(args[0]).name, step.name],
      [...made.map(({ name }) => graphRef(name)), carry.map(ref), captured.map(ref)],
      made[1].types,
    );
  }

  scan(): Local {
    const { site, node } = this;
    const at = scanPositions(node.target);
    const step = this.body(node.args[0]);
    const init =
      at.init === undefined
        ? []
        : this.names(at.init).map((name, k) => site.entering(name, step, k));
    const [xs, captured] = [this.locals(at.xs), this.locals(at.captured)];
    const rows = this.typesOf(xs).map(({ dtype, shape }) => ({ dtype, shape: shape.slice(1) }));
    const made = site.body(
      step,
      [...this.typesOf(init), ...rows, ...this.typesOf(captured)],
      init.length,
    );
    const length = xs.length > 0 ? site.emit.type(xs[0]).shape[0] : getOwn(node.kwargs, 'length');
    if (typeof length !== 'number') throw internalError(`${node.name} has no length`);
    const types = made.types.map(({ dtype, shape }, k): LocalType => ({
      dtype,
      shape: k < init.length ? shape : [length, ...shape],
    }));
    const operands: Arg[] = [init, xs, captured].map((names) => names.map(ref));
    const given = node.target === 'scan' ? operands : operands.slice(1);
    return this.write([made.name], [step.name], [graphRef(made.name), ...given], types);
  }

  private names(at: number): string[] {
    const { node } = this;
    const arg: Arg | undefined = node.args[at];
    return arg !== undefined && isList(arg)
      ? arg.map((member) =>
          isRef(member) ? member.name : internal(`${node.name} takes a value that is not a tensor`),
        )
      : [];
  }

  private body(arg: Arg | undefined): Graph {
    const found =
      arg !== undefined && isGraphRef(arg) ? getOwn(this.graph.subgraphs, arg.name) : undefined;
    return found ?? internal(`${this.node.name} has no body`);
  }

  private typesOf(values: readonly string[]): LocalType[] {
    return values.map((value) => this.site.emit.type(value));
  }

  /** Writes the call itself, with the names that its bodies have, and those that they had. */
  private write(
    bodies: readonly string[],
    origins: readonly string[],
    given: readonly Arg[],
    types: readonly LocalType[],
  ): Local {
    const { target, kwargs, name: called } = this.node;
    const made = this.site.emit.control(target, given, kwargs, called, types);
    this.site.called(made.name, bodies, origins);
    return { items: made.members.map((name): Local => ({ name })) };
  }
}

function graphRef(name: string): Arg {
  return { kind: 'graph', name };
}

export function internal(message: string): never {
  throw internalError(message);
}
