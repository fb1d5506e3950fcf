/** Reads a plan folder and checks it; the answer of `check-plan` for one plan. */
import { ShardwrightError } from '../../../errors.ts';
import type { OperatorTable } from '../../../ops/record/table.ts';
import { checkPlan, type PlanCheck } from '../../../plan/questions/check-plan.ts';
import { madeAgain } from '../../input/pipeline-file.ts';
import { problemsBeside, type WholePlan, wholePlan } from '../../input/plan-folder.ts';

/** The record that `check-plan --json` prints; the keys are a contract. */
export interface CheckPlanReport extends Omit<PlanCheck, 'prepared' | 'choice' | 'problems'> {
  readonly model: string;
  readonly mesh: string;
  readonly ok: boolean;
  /** Seconds of the check, reading included. */
  readonly seconds: number;
}

/** A plan folder that was checked. */
export interface CheckedPlan {
  readonly report: CheckPlanReport;
  readonly check: PlanCheck;
  readonly folder: WholePlan;
}

/** Checks a plan folder. */
export function checkOne(path: string, table: OperatorTable): CheckedPlan {
  const began = performance.now();
  const folder = wholePlan(path);
  const { plan } = folder;
  const beside = problemsBeside(path);
  const whole = beside.length === 0 ? folder : { ...folder, problems: beside };
  const check = named(path, () => checkPlan(whole, table, madeAgain(table)));
  const report: CheckPlanReport = {
    model: plan.model,
    mesh: plan.request.mesh,
    ok: check.differences.length === 0,
    differences: check.differences,
    fields: check.fields,
    producer: check.producer,
    checkedBy: check.checkedBy,
    recheckedSeconds: check.recheckedSeconds,
    boundSeconds: check.boundSeconds,
    certificateNumbers: check.certificateNumbers,
    seconds: (performance.now() - began) / 1000,
  };
  return { report, check, folder };
}

function named<T>(path: string, check: () => T): T {
  try {
    return check();
  } catch (error) {
    throw error instanceof ShardwrightError ? error.with({ file: path }) : error;
  }
}
