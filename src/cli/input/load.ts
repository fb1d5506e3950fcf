/**
 * Loads the graph of a model argument (file, stdin, script, config or name) and applies the
 * corrections that flags ask for.
 */

import { basename } from 'node:path';

import { defined } from '../../defined.ts';
import { ShardwrightError } from '../../errors.ts';
import type { SizeValues } from '../../graph/text/size-value.ts';
import type { Graph } from '../../graph/types.ts';
import { inferBy } from '../../import/complete/infer.ts';
import { importOnDemand } from '../../import/on-demand.ts';
import type { ProgramCounts } from '../../import/types.ts';
import type { VocabularyPadding } from '../../models/vocabulary.ts';
import type { OperatorTable } from '../../ops/record/table.ts';
import type { Vjps } from '../../ops/vjp/vjp.ts';
import { atSizes } from '../../passes/sizes/fix-sizes.ts';
import { shownPath } from '../../platform/read-file.ts';
import type { Given } from './flags/flag.ts';
import type { MODEL_FLAGS } from './flags/model-flags.ts';
import {
  type BuildOptions,
  type BuiltModel,
  configModel,
  namedModel,
  refuseSizes,
} from './load-config.ts';
import { derivedOperatorsWith } from './load-operators.ts';
import { readModelFile } from './read-model-file.ts';
import { isScript } from './script-name.ts';

/** Flags that correct a graph read from a file, and flags of a model that is built. */
interface LoadOptions extends Partial<Given<typeof MODEL_FLAGS>>, BuildOptions {
  /** The mesh on which the per-device code of a program is traced. */
  readonly mesh?: string;
}

interface LoadedModel {
  readonly graph: Graph;
  /** The graph with its sizes open, and what `--size` fixed them at; others have examples. */
  readonly open: Graph;
  readonly sizes: SizeValues;
  readonly table: OperatorTable;
  readonly format: string;
  readonly counts?: ProgramCounts;
  /** The padding of a built model's vocabulary, where it was asked for. */
  readonly padding?: VocabularyPadding;
  /** The step of a built model, in words. */
  readonly step?: string;
}

/**
 * Reads, imports and corrects a model file (`-`: stdin); a program is run and traced, a config or
 * the name of a model is built.
 */
export async function loadModel(path: string, options: LoadOptions): Promise<LoadedModel> {
  const trained = await withBackward(await readModel(path, options), path, options);
  const read = await withOptimizerStep(trained, path, options);
  const sizes = new Map(options.size);
  return {
    ...read,
    graph: atSizes(read.graph, sizes),
    open: read.graph,
    sizes,
  };
}

/**
 * The program with its backward pass, where `--training` asks for it and the program has none. One
 * whose single result is a number is a loss.
 *
 * @throws E_USAGE for a program without a parameter
 */
async function withBackward(
  read: ReadModel,
  path: string,
  { training }: LoadOptions,
): Promise<ReadModel> {
  const { graph, table, vjps, format } = read;
  if (training !== true || format === 'hf-config') return read;
  const returned = await withGradients(graph, table);
  if (returned !== undefined) return { ...read, graph: returned };
  if (!graph.nodes.some(({ meta }) => meta.role === 'parameter'))
    throw new ShardwrightError(
      'E_USAGE',
      `--training: ${shownPath(path)} has no parameter to train`,
      {
        hint: 'say which inputs are parameters: --role NAME=parameter; in a program, parameter().',
      },
    );
  const { jointGraph } = await import('../../passes/autodiff/joint.ts');
  const [loss, ...others] = graph.outputs;
  const made = graph.nodes.find(({ name }) => name === loss?.value)?.type;
  const isLoss = others.length === 0 && made?.kind === 'tensor' && made.shape.length === 0;
  const joint = jointGraph(graph, { table, ...defined({ vjps }), ...(isLoss ? { seed: 1 } : {}) });
  const note = 'The backward pass is derived from the program (--training).';
  return { ...read, graph: { ...joint, notes: [...(joint.notes ?? []), note] } };
}

/**
 * The program with the update of its parameters, where that is asked for. @throws E_USAGE where it
 * returns no gradient
 */
async function withOptimizerStep(
  read: ReadModel,
  path: string,
  { optimizerStep }: LoadOptions,
): Promise<ReadModel> {
  if (optimizerStep === undefined) return read;
  const { table } = read;
  const graph = await withGradients(read.graph, table);
  if (graph === undefined)
    throw new ShardwrightError(
      'E_USAGE',
      `--optimizer-step ${optimizerStep}: ${shownPath(path)} returns no gradient of a parameter`,
      {
        hint:
          read.format === 'hf-config'
            ? 'leave out --forward.'
            : 'derive its backward pass with --training, or give a joint graph.',
      },
    );
  const [{ trainStep }, optimizers] = await Promise.all([
    import('../../passes/training/train-step.ts'),
    import('../../passes/training/optimizer.ts'),
  ]);
  // Placements do not depend on these numbers.
  const optimizer =
    optimizerStep === 'sgd'
      ? optimizers.sgd({ lr: 1e-3, momentum: 0.9 })
      : optimizers[optimizerStep]({ lr: 1e-3, weightDecay: 0.1 });
  const stepped = trainStep(graph, optimizer, { table });
  const note =
    `The update of ${optimizerStep} is part of the program, call by call in float32: states ` +
    'and gradients have placements of their own.';
  return { ...read, graph: { ...stepped, notes: [...(stepped.notes ?? []), note] } };
}

/**
 * A program that returns gradients. Those of JAX return them among their results; undefined where
 * none does.
 */
async function withGradients(graph: Graph, table: OperatorTable): Promise<Graph | undefined> {
  if (graph.outputs.some(({ role }) => role === 'grad')) return graph;
  const [{ isXlaProgram }, { withReturnedGradients }, { withStepPhases }] = await Promise.all([
    import('../../passes/fusion/xla-loops.ts'),
    import('../../import/complete/train-step.ts'),
    import('../../passes/training/step-phases.ts'),
  ]);
  const found = isXlaProgram(graph) ? withReturnedGradients(graph) : undefined;
  return found === undefined ? undefined : withStepPhases(found, table);
}

interface ReadModel extends Omit<LoadedModel, 'open' | 'sizes'> {
  /** Derivatives of the user's operators. */
  readonly vjps?: Vjps;
}

async function readModel(path: string, options: LoadOptions): Promise<ReadModel> {
  const { format } = options;
  if (isScript(path)) return loadScript(path, options);
  const { table, vjps } = await derivedOperatorsWith(options.ops ?? []);
  const named = await namedModel(path, options, table);
  if (named !== undefined) return ofConfig(path, named, table, options);
  const bytes = readModelFile(path);
  const configured = await configModel(bytes, path, format, options, table);
  if (configured !== undefined) return ofConfig(path, configured, table, options);
  refuseSizes(path, options);
  const imported = await importOnDemand(bytes, {
    file: shownPath(path),
    name: path === '-' ? 'stdin' : modelName(path),
    roles: Object.fromEntries(options.role ?? []),
    ties: options.tie ?? [],
    infer: inferBy(table),
    ...defined({ format }),
    ...(options.input !== undefined ? { inputs: Object.fromEntries(options.input) } : {}),
    ...defined({ select: options.select }),
    ...(options.trainStep === true ? { trainStep: true } : {}),
    ...(options.ignoreShardings === true ? { ignoreShardings: true } : {}),
  });
  return { ...imported, table, vjps };
}

/** A config decides roles, ties and inputs, so corrections from outside are refused. */
function ofConfig(
  path: string,
  built: BuiltModel,
  table: OperatorTable,
  options: LoadOptions,
): ReadModel {
  const { role = [], tie = [], input = [], select, trainStep = false } = options;
  if (role.length > 0 || tie.length > 0 || input.length > 0 || select !== undefined || trainStep)
    throw new ShardwrightError(
      'E_USAGE',
      `${path} is built from a config: --role, --tie, --train-step, --input and --select are ` +
        'for graph files',
      {
        hint: '--batch, --seq, --dtype, --layers, --forward and --pad-vocab choose what is built.',
      },
    );
  return { ...built, table, format: 'hf-config' };
}

/** A program states roles and ties itself, so corrections from outside are refused. */
async function loadScript(path: string, options: LoadOptions): Promise<ReadModel> {
  const { format, role = [], tie = [], trainStep = false } = options;
  refuseSizes(path, options);
  if (format !== undefined || role.length > 0 || tie.length > 0 || trainStep)
    throw new ShardwrightError(
      'E_USAGE',
      `${path} is a program: --format, --role, --tie and --train-step are for graph files`,
      {
        hint: 'state roles in the program, with param, buffer and spec.',
      },
    );
  const { traceScript } = await import('./load-script.ts');
  const { table, vjps } = await derivedOperatorsWith(options.ops ?? []);
  const graph = await traceScript(path, table, options.mesh);
  return { graph, table, vjps, format: 'trace' };
}

/** `llama` of `models/llama.fx.txt.gz`, on one line. */
function modelName(path: string): string {
  return basename(path)
    .replace(/(\.(gz|txt|py|fx|readable|swg|mlir|jaxpr|pt2|onnx|json|model|graph|ep|log))+$/, '')
    .replace(/[\r\n]+/g, ' ');
}
