/** Records programs of blocks and jumps as one control-flow operator. */

import { checkKinds } from '../../arguments.ts';
import { ShardwrightError } from '../../errors.ts';
import {
  type Block,
  type BlockEnd,
  blockOf,
  type Cfg,
  checkCfg,
  type Edge,
} from '../../passes/control/cfg/cfg.ts';
import { predicate } from '../control/traced-values.ts';
import { needRecorder } from '../record/recorder.ts';
import type { TensorSpec } from '../record/spec.ts';
import type { Tensor } from '../tensor/tensor.ts';
import { trace, type TraceOptions } from '../trace.ts';

/** The next block of a block, as its body says. */
interface Goto {
  readonly to: string;
  readonly args: readonly Tensor[];
}

type Exit =
  | { readonly kind: 'jump'; readonly go: Goto }
  | { readonly kind: 'branch'; readonly on: Tensor; readonly then: Goto; readonly otherwise: Goto }
  | { readonly kind: 'return'; readonly values: readonly Tensor[] };

/** A block of an explicit control-flow graph: the types of its parameters, and its body. */
export interface BlockSpec {
  readonly params: readonly TensorSpec[];
  readonly body: (...params: Tensor[]) => Exit;
}

/** Goes on at a block. */
export function jump(to: string, ...args: Tensor[]): Exit {
  return { kind: 'jump', go: { to, args } };
}

/** Goes to one of two blocks. @throws E_COND_PRED for a predicate that is not one bool */
export function branch(on: Tensor, then: Goto, otherwise: Goto): Exit {
  predicate(needRecorder('branch()'), on, 'E_COND_PRED', 'the predicate of branch');
  return { kind: 'branch', on, then, otherwise };
}

/** Ends the program. */
export function leave(...values: Tensor[]): Exit {
  return { kind: 'return', values };
}

/**
 * Records a program of blocks, for control flow that has no shape of ifs and loops. Blocks read
 * their parameters only.
 *
 * @throws E_CFG for edges that do not fit; what `trace` throws for a block
 */
export function captureCfg(
  name: string,
  entry: string,
  blocks: Readonly<Record<string, BlockSpec>>,
  options: TraceOptions = {},
): Cfg {
  checkKinds('captureCfg', {
    name: [name, 'string'],
    entry: [entry, 'string'],
    blocks: [blocks, 'record'],
    options: [options, 'record', 'undefined'],
  });
  const made = Object.entries(blocks).map(([id, block]) => traced(id, block, options));
  const cfg: Cfg = { name, entry, blocks: made };
  checkCfg(cfg);
  return cfg;
}

function traced(id: string, { params, body }: BlockSpec, options: TraceOptions): Block {
  let exit: Exit | undefined;
  const graph = trace(
    (...inputs: Tensor[]) => {
      exit = body(...inputs);
      return tensorsOf(exit);
    },
    params,
    { ...options, name: id },
  );
  if (exit === undefined) throw new ShardwrightError('E_CFG', `block ${id} has no end`);
  const names = graph.outputs.map((output) => output.value ?? '');
  return blockOf(id, graph, endOf(exit, names));
}

/** The tensors that an end reads, in order. */
function tensorsOf(exit: Exit): Tensor[] {
  switch (exit.kind) {
    case 'jump':
      return [...exit.go.args];
    case 'branch':
      return [exit.on, ...exit.then.args, ...exit.otherwise.args];
    case 'return':
      return [...exit.values];
  }
}

/** The same end by the names of these tensors. */
function endOf(exit: Exit, names: readonly string[]): BlockEnd {
  switch (exit.kind) {
    case 'jump':
      return { kind: 'jump', edge: { to: exit.go.to, args: names } };
    case 'branch': {
      const [on, ...args] = names;
      const count = exit.then.args.length;
      const then: Edge = { to: exit.then.to, args: args.slice(0, count) };
      return { kind: 'branch', on, then, else: { to: exit.otherwise.to, args: args.slice(count) } };
    }
    case 'return':
      return { kind: 'return', values: names };
  }
}
