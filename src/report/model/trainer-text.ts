/** Names the trainer that a question is for. */
import { TRAINERS } from '../../trainers/trainers.ts';

/** `Megatron-LM, megatron-core 0.16.1 (--for asks for another)`. */
export function trainerText(id: string): string {
  const trainer = TRAINERS.find((known) => known.id === id);
  if (trainer === undefined) return id;
  const release = trainer.release === undefined ? '' : `, ${trainer.release}`;
  return `${trainer.title}${release} (--for asks for another)`;
}
