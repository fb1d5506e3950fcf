import { ShardwrightError } from '../errors.ts';
import { parseMesh } from '../mesh/mesh.ts';
import { plannable } from '../passes/plannable.ts';
import { shrinkGraph, type Shrunk } from '../passes/shrink.ts';
import { prepare } from '../plan/prepare.ts';
import { shardPrepared } from '../plan/shard.ts';
import { transplant } from '../plan/transplant.ts';
import { tableText } from '../units.ts';
import { verify, type Verification } from '../simulate/verify.ts';
import { clusterText } from './cluster-file.ts';
import { EXIT, type CliIo } from './io.ts';
import { loadModel } from './load.ts';
import { parsePositive } from './options.ts';
import { progressPrinter, reportInfeasible, requestOf, type PlanOptions } from './plan.ts';

export interface VerifyOptions extends PlanOptions {
  /** `false`: the model's own sizes. */
  readonly shrink: boolean;
  /** Plan the reduced model instead of placing it as the full-size plan says. */
  readonly replan?: boolean;
  readonly tolerance: string;
}

/** What `verify` prints; the keys are a contract. */
export interface VerifyReport extends Verification {
  readonly model: string;
  readonly mesh: string;
  /** Sizes that were reduced for the run. */
  readonly sizes: readonly { readonly from: number; readonly to: number }[];
  /** Calls whose sizes had to stay. */
  readonly kept: Shrunk['kept'];
  /** `full`: the placements of the plan at full size; `reduced`: a plan of the reduced model. */
  readonly planned: 'full' | 'reduced';
}

/** `verify`: plan, reduce the sizes, lower, run on virtual devices, compare with the single-device run. */
export async function verifyCommand(path: string, options: VerifyOptions, io: CliIo): Promise<number> {
  const request = requestOf({ ...options, cluster: clusterText(options.cluster, options.calibration) });
  const tolerance = parsePositive(options.tolerance, '--tolerance');
  const { graph: given, table } = await loadModel(path, options);
  try {
    const graph = plannable(given, table);
    const { sizes: meshSizes } = parseMesh(request.mesh);
    const own: Shrunk = { graph, sizes: [], kept: [] };
    const replan = options.replan === true || !options.shrink;
    const again = request.checkpoint !== undefined && request.checkpoint !== 'none';
    const before = options.shrink && (replan || !again) ? shrinkGraph(graph, table, { meshSizes }) : own;
    const prepared = prepare(replan ? before.graph : graph, request, table);
    const result = await shardPrepared(prepared, { onProgress: progressPrinter(io, options.quiet === true) });
    if (result.status === 'infeasible') return reportInfeasible(result, prepared, io, options.json === true);
    // Second runs of a checkpointed plan stand in the program that it was made for.
    const { program, request: settled } = result.prepared;
    const reduced = !again
      ? before
      : replan
        ? { ...before, graph: program }
        : shrinkGraph(program, table, { meshSizes });
    const small = replan ? result.prepared : prepare(reduced.graph, settled, table);
    const plan = replan ? result.plan : transplant(result.plan, small);
    const verification = verify(reduced.graph, plan, table, { seed: request.seed, tolerance });
    const report: VerifyReport = {
      ...verification,
      model: result.plan.model,
      mesh: request.mesh,
      sizes: reduced.sizes.filter(({ from, to }) => from !== to),
      kept: reduced.kept,
      planned: replan ? 'reduced' : 'full',
    };
    io.stdout(options.json === true ? `${JSON.stringify(report)}\n` : `${textOf(report)}\n`);
    return report.mismatches.length === 0 ? EXIT.ok : EXIT.internal;
  } catch (error) {
    if (error instanceof ShardwrightError && error.details.position !== undefined) throw error.with({ file: path });
    throw error;
  }
}

/** Mismatches that are printed. */
const SHOWN = 10;

function textOf(report: VerifyReport): string {
  const { mismatches, sizes } = report;
  const ran = Object.entries(report.collectives).map(([kind, n]) => `${n} ${kind}`);
  const lines = tableText([
    ['devices', `${report.devices} virtual (${report.mesh})`],
    ['sizes', sizes.length === 0 ? 'those of the model' : sizes.map(({ from, to }) => `${from} as ${to}`).join(', ')],
    ['tensors', `${report.nodesCompared} compared, ${report.outputsCompared} outputs and gradients among them`],
    ['error', `${report.maxRelativeError.toExponential(1)} at most, relative, in float64`],
    ['collectives', ran.length === 0 ? 'none' : ran.join(', ')],
  ]);
  const kept = report.kept.map((k) => `  sizes of ${k.node} (${k.target}) stay: ${k.reason}`);
  const wrong = mismatches
    .slice(0, SHOWN)
    .map((m) => `  ${m.where}${m.target === undefined ? '' : ` (${m.target}, ${m.sharding ?? ''})`}: ${m.message}`);
  if (mismatches.length > SHOWN) wrong.push(`  and ${mismatches.length - SHOWN} more`);
  const verdict =
    mismatches.length === 0
      ? 'the sharded program computes what the unsharded one does, with the collectives of the plan'
      : `${mismatches.length} mismatches; the first is nearest to the fault:`;
  return [lines, ...kept, verdict, ...wrong].join('\n');
}
