import type { Section } from '../blocks.ts';
import type { Report } from '../data.ts';
import { against } from './against.ts';
import { memory } from './memory.ts';
import { time } from './time.ts';
import { assumptions, proof, reproduce } from './trust.ts';
import { whatToDo } from './what-to-do.ts';

/** The sections of a plan's report that every format has, in their order. */
export function planSections(report: Report): Section[] {
  return [
    whatToDo(report),
    time(report),
    memory(report),
    against(report),
    proof(report),
    assumptions(report),
    reproduce(report),
  ];
}
