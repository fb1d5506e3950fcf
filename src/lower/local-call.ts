/**
 * Lowers one call: from its global arguments with their placements to its local arguments and
 * results.
 */
import { internalError, ShardwrightError } from '../errors.ts';
import type { Arg, Node } from '../graph/types.ts';
import { isList, isRef, ref } from '../graph/value.ts';
import { formOf } from '../ops/record/infer.ts';
import type { OperatorRecord, TypedContext } from '../ops/record/record.ts';
import type { Rule } from '../ops/record/rule.ts';
import type { Emitter } from './program/emitter.ts';
import type { Piece, Pieces } from './program/pieces.ts';
import type { RankInt } from './program/rank-int.ts';

/**
 * The local form of a call whose rules ask for a change: names of its results, null for one that is
 * masked off.
 */
export type Rewrite = (call: LocalCall) => readonly (string | null)[];
/** By canonical operator name. */
export type Rewrites = Readonly<Record<string, Rewrite>>;

/** The parts that a call is made from. */
type CallOnDevice = Pick<
  LocalCall,
  | 'emit'
  | 'pieces'
  | 'node'
  | 'record'
  | 'global'
  | 'inputs'
  | 'inputSpecs'
  | 'outputSpecs'
  | 'rules'
  | 'memberName'
>;

/**
 * A call of the unsharded program that is written for one device: its operands are local, its rules
 * known.
 */
export class LocalCall {
  readonly emit: Emitter;
  readonly pieces: Pieces;
  readonly node: Node;
  readonly record: OperatorRecord;
  /** The call at global sizes. */
  readonly global: TypedContext;
  /** Local values in schema order, already placed as the rules want them. */
  readonly inputs: readonly string[];
  readonly inputSpecs: readonly number[];
  readonly outputSpecs: readonly number[];
  /** The rule that the call takes on each mesh dim. */
  readonly rules: readonly (Rule | undefined)[];
  /** The name that the unsharded program has for a result. */
  readonly memberName: (k: number) => string | undefined;
  /** Arguments and keywords with the local operands in them. */
  readonly args: readonly Arg[];
  readonly kwargs: Readonly<Record<string, Arg>>;

  constructor(call: CallOnDevice) {
    this.emit = call.emit;
    this.pieces = call.pieces;
    this.node = call.node;
    this.record = call.record;
    this.global = call.global;
    this.inputs = call.inputs;
    this.inputSpecs = call.inputSpecs;
    this.outputSpecs = call.outputSpecs;
    this.rules = call.rules;
    this.memberName = call.memberName;
    const { record, node, inputs } = call;
    const { args, kwargs } = withTensors(record, node.args, node.kwargs, inputs);
    this.args = args;
    this.kwargs = kwargs;
  }

  /**
   * How the lowering must change the call, by mesh dim: words of `Rule.rewrite`. Rows that it takes
   * are its operands already.
   */
  rewrites(): Set<string> {
    return new Set(
      this.rules.flatMap((r) =>
        r?.rewrite === undefined || r.takes !== undefined ? [] : [r.rewrite],
      ),
    );
  }

  /** Mesh dims whose rule is rewritten in one of these ways. */
  meshDims(...words: readonly string[]): number[] {
    return this.rules.flatMap((r, m) =>
      r?.rewrite !== undefined && words.includes(r.rewrite) ? [m] : [],
    );
  }

  /** Local name of a tensor argument. */
  tensor(name: string): string {
    return this.optional(name) ?? this.fail(`has no tensor '${name}'`);
  }

  optional(name: string): string | undefined {
    const at = this.global.indexOf(name);
    return at < 0 ? undefined : this.inputs[at];
  }

  /** Rows of a dim of a tensor argument that this rank holds. */
  inputPiece(name: string, dim: number): Piece {
    const at = this.global.indexOf(name);
    if (at < 0) this.fail(`has no tensor '${name}'`);
    return this.pieces.of(this.inputSpecs[at], dim, this.global.inputs[at].shape[dim]);
  }

  outputPiece(dim: number, k = 0): Piece {
    return this.pieces.of(this.outputSpecs[k], dim, this.globalShape(k)[dim]);
  }

  globalShape(k = 0): readonly number[] {
    return this.global.outputs[k]?.shape ?? this.fail(`has no result ${k}`);
  }

  /** Shape of a result on each rank. */
  localShape(k = 0): RankInt[] {
    return this.pieces.shape(this.outputSpecs[k], this.globalShape(k));
  }

  /** Devices over which some mesh dims cut a dim of a tensor argument. */
  piecesOf(name: string, dim: number): number {
    return this.pieces.space.pieces(this.inputSpecs[this.global.indexOf(name)], dim);
  }

  /** The same call with some arguments replaced, by name; one name for each result. */
  run(replaced: Readonly<Record<string, Arg>> = {}, final = true): (string | null)[] {
    const args = [...this.args];
    const kwargs: Record<string, Arg> = { ...this.kwargs };
    for (const [name, value] of Object.entries(replaced)) {
      const at = this.positionOf(name);
      if (at >= 0 && at < args.length) args[at] = value;
      else
        Object.defineProperty(kwargs, name, {
          value,
          enumerable: true,
          writable: true,
          configurable: true,
        });
    }
    const options = {
      kwargs,
      ...(final ? { name: this.node.name } : {}),
      form: final ? formOf(this.record, this.global, this.global.outputs) : 0,
    };
    if (this.record.results === 'single') return [this.emit.call(this.node.target, args, options)];
    return this.emit.callTuple(
      this.node.target,
      args,
      final ? { ...options, members: this.memberName } : options,
    );
  }

  /** `run` of a call with one result. */
  runOne(replaced: Readonly<Record<string, Arg>> = {}, final = true): string {
    const [name] = this.run(replaced, final);
    return name ?? this.fail('has no result');
  }

  /** Position of an argument that is not keyword-only, else -1. */
  private positionOf(name: string): number {
    let position = 0;
    for (const s of this.record.schema) {
      if (s.name === name) return s.kwargOnly ? -1 : position;
      if (!s.kwargOnly) position++;
    }
    throw internalError(`${this.record.name} has no argument '${name}'`);
  }

  /** @throws E_UNSUPPORTED naming operator, node and rewrite */
  unsupported(why: string): never {
    throw new ShardwrightError('E_UNSUPPORTED', `${this.node.target} is not lowered: ${why}`, {
      node: this.node.name,
      hint: 'pin the node to a placement that needs no such change, such as R',
    });
  }

  private fail(why: string): never {
    throw internalError(`${this.node.target} ${why}`, { node: this.node.name });
  }
}

/** Arguments with their tensors, counted in schema order, replaced. */
export function withTensors(
  record: OperatorRecord,
  args: readonly Arg[],
  kwargs: Readonly<Record<string, Arg>>,
  names: readonly string[],
): { args: Arg[]; kwargs: Record<string, Arg> } {
  let next = 0;
  const put = (arg: Arg): Arg => {
    if (isList(arg)) return arg.map(put);
    return isRef(arg) ? ref(names[next++]) : arg;
  };
  const outArgs = [...args];
  const outKwargs: Record<string, Arg> = { ...kwargs };
  let position = 0;
  for (const s of record.schema) {
    const at = s.kwargOnly ? -1 : position++;
    if (!s.type.startsWith('Tensor')) continue;
    if (at >= 0 && at < args.length) outArgs[at] = put(args[at]);
    else if (Object.hasOwn(kwargs, s.name)) outKwargs[s.name] = put(kwargs[s.name]);
  }
  if (next !== names.length)
    throw internalError(`${record.name}: ${names.length} operands for ${next} places`);
  return { args: outArgs, kwargs: outKwargs };
}
