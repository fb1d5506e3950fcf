/** Lists the sections of a plan's report in their order. */

import type { Section } from '../model/blocks.ts';
import type { Report } from '../model/data.ts';
import { against } from './against.ts';
import { memory } from './memory.ts';
import { pipelineSection } from './pipeline.ts';
import { time } from './time.ts';
import { assumptions, proof, reproduce, trust } from './trust.ts';
import { whatToDo } from './what-to-do.ts';

/** The sections of a plan's report that every format has, in their order. */
export function planSections(report: Report): Section[] {
  return [
    whatToDo(report),
    time(report),
    memory(report),
    against(report),
    ...pipelineSection(report),
    proof(report),
    trust(report),
    assumptions(report),
    reproduce(report),
  ];
}
