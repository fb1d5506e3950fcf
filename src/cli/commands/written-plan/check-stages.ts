/**
 * `check-plan` of a folder of pipeline stages: every stage, the placements at both ends of each
 * message, and the schedule played again.
 */

import { join } from 'node:path';

import { usableMemoryBytes } from '../../../cost/hardware/cluster.ts';
import { loadCluster } from '../../../cost/hardware/load-cluster.ts';
import { itemAt } from '../../../item-at.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import {
  Comparison,
  differenceText,
  type PlanDifference,
} from '../../../plan/questions/differences.ts';
import { total } from '../../../sweep/pipeline/plan.ts';
import { partPrices, playedStages, unitsOfParts } from '../../../sweep/pipeline/priced-part.ts';
import { countedText, secondsText, tableText } from '../../../units.ts';
import { readStages, STAGES_FILE, type StagesFile } from '../../input/stages-folder.ts';
import { type CheckedPlan, checkOne, type CheckPlanReport } from './checked-plan.ts';

/** The record that `check-plan --json` prints of a folder of stages; the keys are a contract. */
export interface CheckStagesReport {
  readonly model: string;
  /** The mesh of a stage. */
  readonly mesh: string;
  readonly ok: boolean;
  /** Fields of `stages.json`, and placements of messages, that are not what follows. */
  readonly differences: readonly PlanDifference[];
  readonly fields: number;
  /** The step that follows from the plans of the stages. */
  readonly stepSeconds: number;
  readonly stages: readonly CheckPlanReport[];
}

/** Checks a folder of stages. */
export function checkStages(path: string, table: OperatorTable): CheckStagesReport {
  const file = readStages(path);
  const checked = file.stages.map(({ folder }) => checkOne(join(path, folder), table));
  const compared = new Comparison();
  file.stages.forEach(({ plan }, k) =>
    compared.value(
      `${STAGES_FILE} $.stages[${k}].plan`,
      plan,
      itemAt(checked, k).folder.plan.hashes?.plan,
    ),
  );
  compareMessages(compared, file, checked);
  const stepSeconds = comparePlayed(compared, file, checked, table);
  const { differences, fields } = compared;
  const stages = checked.map(({ report }) => report);
  const ok = differences.length === 0 && stages.every((stage) => stage.ok);
  return { model: file.model, mesh: file.mesh, ok, differences, fields, stepSeconds, stages };
}

type Ends = StagesFile['stages'][number];

/** The position of a message among the results of a stage. */
function positionOf(
  { folder: { program } }: CheckedPlan,
  { of, index }: { readonly of?: string | undefined; readonly index?: number | undefined },
): number {
  return program.outputs.findIndex((output) =>
    of === undefined
      ? output.role === 'output' && output.index === index
      : output.role === 'grad' && output.of === of,
  );
}

/** Holds what a stage receives to the placement in which it is sent. */
function compareMessages(
  compared: Comparison,
  { stages }: StagesFile,
  checked: readonly CheckedPlan[],
): void {
  const sent = (k: number, message: Parameters<typeof positionOf>[1]): string | undefined => {
    const one = itemAt(checked, k);
    return one.folder.plan.outputs[positionOf(one, message)]?.placement;
  };
  const received = (k: number, value: string): string | undefined =>
    itemAt(checked, k).folder.plan.nodes.find(({ name }) => name === value)?.outputs[0];
  stages.slice(0, -1).forEach((here, k) => {
    const behind: Ends = itemAt(stages, k + 1);
    for (const message of here.sends)
      compared.value(
        `stage ${k + 1} receives ${message.value}`,
        received(k + 1, message.value),
        sent(k, message),
      );
    for (const message of behind.sendsBack)
      compared.value(
        `stage ${k} receives ${message.value}`,
        received(k, message.value),
        sent(k + 1, message),
      );
  });
}

/** Plays the schedule with the plans as they are; returns the seconds of the step. */
function comparePlayed(
  compared: Comparison,
  { mesh, stages, shared, pipeline }: StagesFile,
  checked: readonly CheckedPlan[],
  table: OperatorTable,
): number {
  const { schedule, microbatches, virtual } = pipeline;
  const devices = stages.length / virtual;
  const { request } = itemAt(checked, 0).folder.plan;
  const parts = checked.map((one, s) => {
    const { check, folder } = one;
    const output = (message: Parameters<typeof positionOf>[1]): { output: number } => ({
      output: positionOf(one, message),
    });
    const ends = itemAt(stages, s);
    const known = { prepared: check.prepared, choice: check.choice, plan: folder.plan };
    const [sends, sendsBack] = [ends.sends.map(output), ends.sendsBack.map(output)];
    const nameOf = (name: string): string => name;
    return partPrices(known, { s, sends, sendsBack, shared, nameOf, devices }, table);
  });
  const budgetBytes = usableMemoryBytes(loadCluster(request.cluster), request);
  const { cluster, cost } = request;
  const units = unitsOfParts(parts, { mesh, cluster, cost }, devices);
  const played = playedStages(units, { devices, schedule, microbatches, virtual, budgetBytes });
  const follows = {
    ...played,
    budgetBytes,
    stages: played.stages.map((stage, k) => {
      const { unit, sendBackBytes, seconds } = itemAt(parts, k);
      const { status, bound, gap, solver } = itemAt(checked, k).folder.plan.proof;
      return {
        ...stage,
        seconds: total(seconds),
        sendBytes: unit.boundaryBytes,
        sendBackBytes,
        proof: { status, bound, gap, solver },
      };
    }),
  };
  const stated = { ...pipeline, stages: pipeline.stages.map(pricedFields) };
  compared.value(`${STAGES_FILE} $.pipeline`, stated, { ...pipeline, ...follows });
  return played.seconds;
}

type Stated = StagesFile['pipeline']['stages'][number];

/** The fields of a stage that follow from its plan and the schedule. */
function pricedFields({
  calls: _,
  parts: __,
  parameters: ___,
  sameAs: ____,
  ...stated
}: Stated): object {
  return stated;
}

const SHOWN = 20;

function stageText({ ok, differences, recheckedSeconds, boundSeconds }: CheckPlanReport): string {
  const found = ok ? 'is what it says' : `has ${countedText(differences.length, 'difference')}`;
  return (
    `${found}: ${secondsText(recheckedSeconds)} from the placements alone, proven no less than ` +
    secondsText(boundSeconds)
  );
}

/** The check as text. */
export function stagesCheckText(report: CheckStagesReport): string {
  const { model, mesh, stages, differences, fields, stepSeconds, ok } = report;
  const lines = tableText([
    ['stages', `${countedText(stages.length, 'stage')} of ${model}, each on ${mesh}`],
    ...stages.map((stage, k): [string, string] => [`stage ${k}`, stageText(stage)]),
    ['schedule', `played again: ${secondsText(stepSeconds)} a step`],
    ['compared', `${countedText(fields, 'field')} of ${STAGES_FILE}, with both ends of messages`],
  ]);
  if (ok) return `${lines}\nthe stages are what they say, and go together`;
  const all = [
    ...differences.map(differenceText),
    ...stages.flatMap((stage, k) =>
      stage.differences.map((d) => `stage ${k} ${differenceText(d)}`),
    ),
  ];
  const more = all.length > SHOWN ? [`  and ${all.length - SHOWN} more`] : [];
  return [
    lines,
    `the stages are not what they say: ${countedText(all.length, 'difference')}`,
    ...all.slice(0, SHOWN).map((line) => `  ${line}`),
    ...more,
  ].join('\n');
}
