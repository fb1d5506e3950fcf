/**
 * Defines an export target: a plain record that turns a plan with its graph into files and a list
 * of losses. Each target is one file below this folder; `targets.ts` lists them and `export.ts`
 * calls them.
 */
import { checkKinds } from '../arguments.ts';
import { defined } from '../defined.ts';
import { ShardwrightError } from '../errors.ts';
import type { Graph } from '../graph/types.ts';
import { lower } from '../lower/lower.ts';
import type { DeviceProgram } from '../lower/program/program.ts';
import { type DeviceMesh, parseMesh } from '../mesh/devices/mesh.ts';
import type { OperatorTable } from '../ops/record/table.ts';
import type { Plan } from '../plan/record/types.ts';

/**
 * The part of a plan that targets read; a plan without prices, drawn or written by hand, can be
 * exported too.
 */
export type ExportedPlan = Pick<
  Plan,
  'model' | 'mesh' | 'cluster' | 'request' | 'nodes' | 'outputs' | 'parameters' | 'hashes'
> &
  Partial<Pick<Plan, 'objective' | 'greedySeconds' | 'memory'>>;

/** The input of every target. */
export interface ExportSource {
  readonly plan: ExportedPlan;
  readonly mesh: DeviceMesh;
  /** The program that was planned, its bodies as bodies. */
  readonly program: Graph;
  /** The nodes that the plan lists: the program with each body in line. */
  readonly graph: Graph;
  readonly table: OperatorTable;
  /**
   * `sha256:...` of the plan folder, or `unhashed` of a plan that was never written; it is written
   * in the head of files.
   */
  readonly planHash: string;
  /** The per-device program, lowered at the first call. @throws what `lower` throws */
  readonly lowered: () => DeviceProgram;
}

/** Something that the plan says and the files of a target do not. */
export interface ExportLoss {
  /** The item of the loss: a parameter, a node, a mesh dim, or the whole plan. */
  readonly item: string;
  /** The plan's statement on the item. */
  readonly planned: string;
  /** The statement of the files on the item, or the behaviour of the engine, and why. */
  readonly instead: string;
}

/** A file of the answer. */
export interface ExportFile {
  /** Path below the output folder, with `/`. */
  readonly name: string;
  readonly text: string;
}

/** The files and losses of a target. */
export interface ExportResult {
  /** The first is what is printed where no folder is given. */
  readonly files: readonly ExportFile[];
  /** Empty where the files mean exactly the plan. */
  readonly losses: readonly ExportLoss[];
  /** Notes for the reader of the files; one sentence each, printed on stderr. */
  readonly notes?: readonly string[];
}

/** Placements as files state them: of parameters by fully qualified name, or of nodes by name. */
export interface ReadPlacements {
  readonly parameters?: ReadonlyMap<string, string>;
  readonly nodes?: ReadonlyMap<
    string,
    { readonly inputs?: readonly string[]; readonly outputs: readonly string[] }
  >;
}

/** The order of the calls in a written program. */
export interface OrderOptions {
  /**
   * `program`: as the plan lists the calls, collectives one by one. `simulated`: as the faster
   * simulated step has them, with its buckets. Default: what the simulation says is faster.
   */
  readonly order?: 'program' | 'simulated';
  /**
   * For the simulated order, the most bytes of a bucket of collectives, as
   * `SimulateOptions.bucketBytes`. Default `auto`.
   */
  readonly bucketBytes?: number | 'auto';
}

/** One engine or format that plans are written for. */
export interface ExportTarget {
  /** The name in `--target`. */
  readonly name: string;
  /** One line for the list of targets. */
  readonly summary: string;
  /** Versions of the engine that the files were tried with, `torch 2.13`. */
  readonly triedWith: readonly string[];
  /**
   * Writes the files and lists every loss; it never refuses for a loss, `export.ts` does.
   *
   * @throws E_UNSUPPORTED, with the node, for what there is no text for at all
   */
  readonly write: (source: ExportSource, options?: OrderOptions) => ExportResult;
  /** True if it takes `OrderOptions`. */
  readonly ordered?: true;
  /**
   * Files that hold the written program against the uncut one at small sizes; present where a
   * target writes programs.
   */
  readonly check?: (source: ExportSource, options?: OrderOptions) => readonly ExportFile[];
  /** Reads the placements that the files state; present where the target states shardings. */
  readonly readBack?: (files: readonly ExportFile[], mesh: DeviceMesh) => ReadPlacements;
}

/**
 * A plan with its graph as targets take it.
 *
 * @param input its `pricedAs` is the planned graph, where `program` is it at other sizes
 */
export function exportSource(
  input: {
    readonly plan: ExportedPlan;
    readonly program: Graph;
    readonly graph?: Graph;
    readonly pricedAs?: Graph;
  },
  table: OperatorTable,
): ExportSource {
  checkKinds('exportSource', {
    input: [input, ['plan', 'program']],
    table: [table, 'operators'],
  });
  const { plan, program, graph, pricedAs } = input;
  let lowered: DeviceProgram | undefined;
  return {
    plan,
    mesh: parseMesh(plan.request.mesh),
    program,
    graph: graph ?? program,
    table,
    planHash: plan.hashes?.plan === undefined ? 'unhashed' : `sha256:${plan.hashes.plan}`,
    lowered: () => (lowered ??= lower(program, plan, { table, ...defined({ pricedAs }) })),
  };
}

/** The target that writes a program itself: `jax` for one of JAX, else `torch`. */
export function ownTarget({ nodes, subgraphs }: Graph): 'jax' | 'torch' {
  return nodes.some(({ target }) => /^(stablehlo|chlo|jax)\./.test(target)) ||
    Object.values(subgraphs).some((body) => ownTarget(body) === 'jax')
    ? 'jax'
    : 'torch';
}

/**
 * @param program the program of the plan
 * @throws E_EXPORT_LOSS listing each loss
 */
export function refuseLosses(
  { name }: ExportTarget,
  losses: readonly ExportLoss[],
  program: Graph,
): never {
  const shown = losses
    .slice(0, 20)
    .map(({ item, planned, instead }) => `${item}: planned ${planned}; ${instead}`);
  const own = ownTarget(program);
  const rest = losses.length > shown.length ? [`and ${losses.length - shown.length} more`] : [];
  const what = losses.length === 1 ? 'one thing' : `${losses.length} things`;
  throw new ShardwrightError(
    'E_EXPORT_LOSS',
    [`${name} cannot say ${what} of this plan`, ...shown, ...rest].join('\n'),
    {
      hint:
        'give --allow-lossy to write the rest with these lines at the top' +
        (own === name ? '.' : `, or export with --target ${own}.`),
    },
  );
}
