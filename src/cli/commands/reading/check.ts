/** `check`: what a mode forbids in a program or a plan, and whether its types can be stripped. */
import { existsSync, statSync } from 'node:fs';

import { defined } from '../../../defined.ts';
import { ShardwrightError } from '../../../errors.ts';
import type { CheckReport } from '../../../local-spmd/check.ts';
import type { Mode } from '../../../local-spmd/modes.ts';
import { fixText, type Violation } from '../../../local-spmd/typed.ts';
import { perDeviceRegions } from '../../../passes/plannable/device-regions.ts';
import { checkPlannedModes, type PlanCheckReport } from '../../../plan/questions/spmd-check.ts';
import { check } from '../../../simulate/strip.ts';
import { bytesText, countedText, lineText, secondsText } from '../../../units.ts';
import { loadModel } from '../../input/load.ts';
import { operatorsWith } from '../../input/load-operators.ts';
import { wholePlan } from '../../input/plan-folder.ts';
import { answer, type CliIo, EXIT } from '../../output/io.ts';
import type { CheckOptions } from './flags.ts';

/** Findings are the answer: exit 0 whatever is found. */
export async function checkCommand(
  path: string,
  options: CheckOptions,
  io: CliIo,
): Promise<number> {
  const { mode } = options;
  const report = isPlan(path)
    ? await ofPlan(path, options, mode)
    : await ofModel(path, options, mode);
  answer(io, options, jsonOf(report), () => textOf(report));
  return EXIT.ok;
}

function isPlan(path: string): boolean {
  return existsSync(path) && (statSync(path).isDirectory() || /plan\.json$/.test(path));
}

async function ofPlan(path: string, options: CheckOptions, mode: Mode): Promise<PlanCheckReport> {
  if (options.mesh !== undefined)
    throw new ShardwrightError('E_USAGE', '--mesh: a plan has its mesh', {
      hint: 'leave --mesh out',
    });
  const { program, plan } = wholePlan(path);
  return checkPlannedModes(program, plan, await operatorsWith(options.ops), mode);
}

async function ofModel(path: string, options: CheckOptions, mode: Mode): Promise<CheckReport> {
  const { graph, table } = await loadModel(path, options);
  const types = Object.fromEntries(options.type);
  return check(perDeviceRegions(graph, table), {
    mode,
    table,
    types,
    ...defined({ mesh: options.mesh }),
  });
}

function jsonOf(report: CheckReport | PlanCheckReport): unknown {
  const plain = ({ node, meshDim, rule, types, fix, message, source }: Violation): unknown => ({
    node,
    meshDim,
    rule,
    types,
    fix,
    message,
    ...defined({ source }),
  });
  return {
    ...report,
    violations: report.violations.map(plain),
    refusals: report.refusals.map(plain),
  };
}

/** Tells whether types can be stripped, and what ran. */
function strippedText({ eraseable, refusals, runs }: CheckReport): string {
  if (refusals.length > 0) return 'no (stripped of them, the program does not run as it should)';
  if (!eraseable) return 'no (strict mode finds violations)';
  const [first] = runs;
  if (first === undefined) return 'yes';
  const sizes = runs.some((run) => run.sizes === 'reduced') ? ' at reduced sizes' : '';
  const what = runs.length > 1 ? 'it and its gradient' : 'it';
  return `yes (${what} ran so on ${first.devices} virtual devices${sizes})`;
}

function textOf(report: CheckReport | PlanCheckReport): string {
  const { mode, violations, refusals, localNotGlobal, implicit, assumed, advice } = report;
  const collectives = 'collectives' in report ? report.collectives : [];
  const lines = [
    `mode ${mode}: ` +
      (violations.length === 0
        ? 'nothing is forbidden'
        : countedText(violations.length, 'violation')),
    `types can be stripped: ${strippedText(report)}`,
    ...refusals.flatMap(({ message, fix }) => [
      `  ${message}`,
      ...(fix === '' ? [] : [`    ${fixText(fix)}`]),
    ]),
    ...violations.flatMap(({ message, fix }) => [`  ${message}`, `    ${fixText(fix)}`]),
    ...(localNotGlobal.length === 0 ? [] : ['local is not global:']),
    ...localNotGlobal.flatMap(({ node, meshDim, local, global, fix }) => [
      `  %${node} on ${meshDim}: per device ${local}, on the whole ${global}`,
      `    ${fix}`,
    ]),
    ...(implicit.length === 0 ? [] : [`made by itself (${implicit.length}):`]),
    ...implicit.map(
      ({ node, meshDim, value, kind, from, to }) =>
        `  %${node}: ${kind} of ${value === undefined ? 'the result' : `%${value}`} on ` +
        `${meshDim}, ${from} to ${to}`,
    ),
    ...(collectives.length === 0 ? [] : [`collectives (${collectives.length}):`]),
    ...collectives.map((c) => {
      const times = c.times === undefined || c.times <= 1 ? '' : ` x${c.times}`;
      const value = c.value === undefined ? '' : ` of %${c.value}`;
      const place = c.source === undefined ? '' : ` at ${c.source}`;
      return (
        `  %${lineText(c.node)}: ${c.kind}(${c.meshDims.join(',')}) ${bytesText(c.bytes)} ` +
        `${secondsText(c.seconds)}${times}${value}, ${c.from} to ${c.to}; ${c.why}${place}`
      );
    }),
    ...(advice.length === 0 ? [] : ['fewer collectives would do:']),
    ...advice.map(
      ({ nodes, meshDim, advice: text }) =>
        `  ${nodes.map((name) => `%${name}`).join(', ')} on ${meshDim}: ${text}`,
    ),
    ...(assumed.length === 0
      ? []
      : [
          `no type is stated of ${assumed.slice(0, 8).join(', ')}` +
            `${assumed.length > 8 ? `, and ${assumed.length - 8} more` : ''}: I`,
        ]),
  ];
  return lines.join('\n');
}
