/**
 * `explain`: takes a written plan and a node and prints the alternatives and, with `--force`, what
 * another strategy would cost.
 */

import { ShardwrightError } from '../../../errors.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import type { Forced, NodeExplanation } from '../../../plan/questions/explain.ts';
import { explainNode, forceNode, reopen } from '../../../plan/questions/explain.ts';
import { explanationText, forcedText } from '../../../report/text/explain.ts';
import { checked, wholePlan } from '../../input/plan-folder.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import { progressPrinter, reportInfeasible } from '../planning/plan.ts';
import type { ExplainOptions } from './flags.ts';

/**
 * The record that `explain --json` prints; its keys are a contract. `attribution` and
 * `changedNodes` are empty without `--force`.
 */
export type ExplainResult = NodeExplanation & {
  readonly attribution: Forced['attribution'];
  readonly changedNodes: readonly string[];
  readonly forced?: {
    readonly spec: string;
    readonly globalSeconds: number;
    readonly seconds: number;
    readonly status: string;
    readonly changes: readonly string[];
  };
};

export async function explainCommand(
  path: string,
  node: string,
  options: ExplainOptions,
  io: CliIo,
): Promise<number> {
  const { limit } = options;
  const folder = wholePlan(path);
  const { plan, program, request } = folder;
  const table = builtinOperators();
  const check = checked(folder, path, table, io);
  const opened = check === undefined ? reopen(plan, program, request, table) : { plan, ...check };
  const found = explainNode(opened, node);
  let forced: Forced | undefined;
  if (options.force !== undefined) {
    const onProgress = progressPrinter(io, options.quiet === true);
    const result = await forceNode(opened, node, options.force, { onProgress }).catch(
      (error: unknown) => {
        throw namingForce(error, node);
      },
    );
    if ('status' in result)
      return reportInfeasible(result, opened.prepared, io, options.json === true);
    forced = result;
  }
  if (options.json === true) {
    const result: ExplainResult = {
      ...found,
      attribution: forced?.attribution ?? [],
      changedNodes: forced?.changedNodes ?? [],
      ...(forced !== undefined
        ? {
            forced: {
              spec: forced.spec,
              globalSeconds: forced.globalSeconds,
              seconds: forced.plan.objective.seconds,
              status: forced.plan.proof.status,
              changes: forced.changes,
            },
          }
        : {}),
    };
    io.stdout(`${JSON.stringify(result)}\n`);
    return EXIT.ok;
  }
  io.stdout(`${explanationText(found, limit)}\n`);
  if (forced !== undefined) io.stdout(`\n${forcedText(forced, plan.objective.seconds, limit)}\n`);
  return EXIT.ok;
}

/** A forced placement is a pin inside; the message names the flag that was given. */
function namingForce(error: unknown, node: string): unknown {
  const pin = `--pin ${node}=`;
  if (!(error instanceof ShardwrightError) || !error.message.startsWith(pin)) return error;
  return new ShardwrightError(
    error.code,
    `--force ${error.message.slice(pin.length)}`,
    error.details,
  );
}
