/** `rules`: prints the sharding rules of operators at sample calls, or checks them by execution. */

import { defined } from '../../../defined.ts';
import { builtinOperators } from '../../../ops/builtin.ts';
import { operatorsWithoutKernel } from '../../../ops/kernels/evaluate.ts';
import type { OperatorRecord } from '../../../ops/record/record.ts';
import { ruleText } from '../../../ops/record/rule.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import { EXPLAINED } from '../../../ops/rules/explained.ts';
import { bindText } from '../../../ops/samples/call-text.ts';
import { sampleCalls } from '../../../ops/samples/table.ts';
import type { Vjps } from '../../../ops/vjp/vjp.ts';
import {
  type DerivativeFinding,
  type Finding,
  operatorNamed,
  validateRules,
} from '../../../simulate/rule-check/check.ts';
import { explain, type ExplainedFinding } from '../../../simulate/rule-check/explain.ts';
import { derivedOperatorsWith } from '../../input/load-operators.ts';
import { type CliIo, EXIT } from '../../output/io.ts';
import type { RulesOptions } from './flags.ts';

/**
 * `shardwright rules`: the rules of operators at their sample calls, or, with `check`, what
 * execution says of them.
 */
export async function rulesCommand(options: RulesOptions, io: CliIo): Promise<number> {
  const builtin = builtinOperators();
  const { table, vjps } = await derivedOperatorsWith(options.ops, builtin);
  if (options.names === true) return listNames(table, options, io);
  const wanted = wantedOf(table, builtin, options);
  return options.check === true
    ? check(table, wanted, { ...options, vjps }, io)
    : list(table, wanted, options, io);
}

/** Every name that a call may have, one a line. */
function listNames(table: OperatorTable, { json }: RulesOptions, io: CliIo): number {
  const names = table.records.flatMap(({ name, aliases }) => [name, ...aliases]).sort();
  io.stdout(json === true ? `${JSON.stringify({ names }, null, 2)}\n` : `${names.join('\n')}\n`);
  return EXIT.ok;
}

/**
 * The operators asked for: one by name, else those that the files bring or add rules to, else all.
 */
function wantedOf(
  table: OperatorTable,
  builtin: OperatorTable,
  { op, ops }: RulesOptions,
): readonly OperatorRecord[] | undefined {
  if (op !== undefined) return [operatorNamed(table, op)];
  if (ops.length === 0) return undefined;
  const known = new Set(builtin.records);
  return table.records.filter((record) => !known.has(record));
}

/** The record that `rules --check --json` prints; its keys are a contract. */
export interface RulesReport {
  readonly operators: number;
  readonly rulesChecked: number;
  readonly samples: number;
  readonly combinations: number;
  readonly unsound: readonly (Finding | ExplainedFinding)[];
  readonly missing: readonly (Finding | ExplainedFinding)[];
  /** Findings with a written reason; they are in neither list above. */
  readonly explained: readonly ExplainedFinding[];
  /** Elements of gradients that were compared with differences of the values. */
  readonly derivativesChecked: number;
  readonly wrongDerivatives: readonly DerivativeFinding[];
  /** Derivatives of the user's operators that were not compared, with the reason. */
  readonly uncompared: readonly string[];
  /** Sample calls with more combinations than were tried. */
  readonly untried: readonly string[];
  /** Operators that no kernel runs. */
  readonly untested: readonly string[];
  /** True if missing rules were searched for (without `--no-search`). */
  readonly searched: boolean;
}

function check(
  table: OperatorTable,
  wanted: readonly OperatorRecord[] | undefined,
  options: RulesOptions & { readonly vjps: Vjps },
  io: CliIo,
): number {
  const isOwn = options.ops.length > 0;
  const found = validateRules(table, {
    ...(wanted === undefined
      ? {}
      : { operators: wanted.map((record) => record.name), squares: isOwn }),
    ...(isOwn ? { vjps: options.vjps } : {}),
    ...defined({ ranks: options.ranks, budget: options.budget, slice: options.slice }),
    complete: options.search,
    onOperator: (name, at, of) => io.progress(`${at} of ${of}: ${name}`),
  });
  const unsound = explain(found.unsound, 'unsound', EXPLAINED);
  const missing = explain(found.missing, 'missing', EXPLAINED);
  const report: RulesReport = {
    operators: found.operators,
    rulesChecked: found.rulesChecked,
    samples: found.samples,
    combinations: found.combinations,
    unsound: unsound.open,
    missing: missing.open,
    explained: [...unsound.explained, ...missing.explained],
    derivativesChecked: found.derivativesChecked,
    wrongDerivatives: found.wrongDerivatives,
    uncompared: found.uncompared,
    untried: found.untried,
    untested: found.untested,
    searched: options.search,
  };
  if (options.json === true) io.stdout(`${JSON.stringify(report, null, 2)}\n`);
  else io.stdout(reportText(report, table));
  const findings = [report.unsound, report.missing, report.wrongDerivatives].flat();
  return findings.length === 0 ? EXIT.ok : EXIT.findings;
}

function reportText(report: RulesReport, table: OperatorTable): string {
  const lines = [
    `${report.operators} operators, ${report.samples} sample calls, ${report.rulesChecked} ` +
      `rules run, ${report.combinations} combinations tried`,
    `unsound: ${report.unsound.length}   missing: ` +
      `${report.searched ? report.missing.length : 'not searched'}   explained: ` +
      `${report.explained.length}`,
  ];
  for (const kind of ['unsound', 'missing'] as const)
    for (const f of report[kind])
      lines.push(`${kind}  ${f.call}: ${f.rule}${f.why === undefined ? '' : `: ${f.why}`}`);
  if (report.derivativesChecked > 0)
    lines.push(
      `derivatives: ${report.derivativesChecked} elements compared   wrong: ` +
        `${report.wrongDerivatives.length}`,
    );
  for (const f of report.wrongDerivatives) lines.push(`derivative  ${derivativeText(f)}`);
  for (const sentence of report.uncompared) lines.push(`not compared  ${sentence}`);
  const reasons = new Map<string, number>();
  for (const f of report.explained) reasons.set(f.reason, (reasons.get(f.reason) ?? 0) + 1);
  for (const [reason, count] of reasons) lines.push(`explained ${count}  ${reason}`);
  if (report.untried.length > 0) lines.push(`too many combinations: ${report.untried.join('; ')}`);
  const silent = new Set(operatorsWithoutKernel(table));
  const mute = report.untested.filter((name) => silent.has(name));
  const idle = report.untested.filter((name) => !silent.has(name));
  if (mute.length > 0) lines.push(`no kernel: ${mute.join(', ')}`);
  if (idle.length > 0)
    lines.push(`no sample calls (state them as \`samples\`): ${idle.join(', ')}`);
  return `${lines.join('\n')}\n`;
}

function derivativeText({ call, input, element, expected, found, why }: DerivativeFinding): string {
  if (element === undefined) return `${call}: gradient of ${input}: ${why}`;
  return (
    `${call}: gradient of ${input}[${element.join(', ')}]: expected ${expected}, found ${found}; ` +
    why
  );
}

function list(
  table: OperatorTable,
  wanted: readonly OperatorRecord[] | undefined,
  options: RulesOptions,
  io: CliIo,
): number {
  const calls = sampleCalls(table).flatMap((call) => {
    const { record, ctx } = bindText(table, call);
    if (wanted?.includes(record) === false) return [];
    return [
      {
        operator: record.name,
        call: call.text,
        rules: record
          .shard(ctx)
          .map((r) => ({ text: ruleText(r), origin: r.origin, rewrite: r.rewrite ?? null })),
      },
    ];
  });
  if (options.json === true) io.stdout(`${JSON.stringify({ calls }, null, 2)}\n`);
  else if (wanted !== undefined && calls.length === 0)
    io.stdout(
      `${wanted.map(({ name }) => name).join(', ')}: there is no sample call of it, because ` +
        'no kernel runs it alone\n',
    );
  else
    for (const { call, rules } of calls) {
      io.stdout(`${call}\n`);
      for (const { text, origin, rewrite } of rules) {
        const note = origin === 'ext' ? '  (not in PyTorch 2.13)' : '';
        io.stdout(`  ${text}${note}${rewrite === null ? '' : `  [${rewrite}]`}\n`);
      }
    }
  return EXIT.ok;
}
