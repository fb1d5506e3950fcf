/** Takes the request of a plan and gives the command line that makes the plan again. */

import { loadCluster } from '../../cost/hardware/load-cluster.ts';
import { defaultCostPreset } from '../../cost/presets/presets.ts';
import { DEFAULT_REQUEST, type PlanRequest } from '../../plan/request/request.ts';

/**
 * The command that makes a plan again from the graph in its folder, with every setting that is not
 * the default.
 *
 * @param graph path of the graph file
 */
export function planCommandLine(request: PlanRequest, graph = 'graph.swg'): string {
  const flags: (readonly [string, string | undefined])[] = [
    ['--mesh', request.mesh],
    // The request holds the text of a cluster file; the command wants a file.
    ['--cluster', request.cluster.trimStart().startsWith('{') ? 'cluster.json' : request.cluster],
    ['--recipe', request.recipe],
    ['--for', request.trainer],
    ['--risk', request.risk === undefined ? undefined : String(request.risk)],
    ['--memory', request.memoryBytes === undefined ? undefined : `${request.memoryBytes}B`],
    ['--headroom', request.headroom === undefined ? undefined : String(request.headroom)],
    ['--optimizer', request.optimizer],
    ['--gradients', request.gradients],
    [
      '--time-limit',
      request.timeLimitSeconds === undefined ? undefined : String(request.timeLimitSeconds),
    ],
    [
      '--cost',
      request.cost === defaultCostPreset(loadCluster(request.cluster)) ? undefined : request.cost,
    ],
    ...(
      ['solver', 'gap', 'seed', 'uneven', 'unknown', 'inputs', 'outputs', 'objective'] as const
    ).map(
      (key) =>
        [
          `--${key}`,
          request[key] === DEFAULT_REQUEST[key] ? undefined : String(request[key]),
        ] as const,
    ),
    ['--gap', request.gap === 0 && request.budgetGap === 0 ? '0' : undefined],
    ['--strided', request.strided],
    ['--accumulate', request.accumulate === undefined ? undefined : String(request.accumulate)],
    ['--maps', request.maps],
    ['--activations', request.activations],
    // A policy that was applied is part of the graph, and the request then says none.
    [
      '--checkpoint',
      request.checkpoint === undefined || request.checkpoint === 'none'
        ? undefined
        : String(request.checkpoint),
    ],
    ...(request.cuts ?? []).map((cut) => ['--cut', cut] as const),
    ...request.pins.map((pin) => ['--pin', `${pin.node}=${pin.spec}`] as const),
  ];
  const words = flags.flatMap(([flag, value]) =>
    value === undefined ? [] : [flag, shellWord(value)],
  );
  if (request.shardings === 'ignore') words.push('--ignore-shardings');
  if (request.compiled === true) words.push('--compiled');
  if (!request.sharing) words.push('--no-sharing');
  if (request.copies !== undefined) words.push('--copies', request.copies);
  if (request.overlap === true) words.push('--overlap');
  return ['shardwright', 'plan', shellWord(graph), ...words].join(' ');
}

/** A word as a POSIX shell reads it back. */
function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`;
}
