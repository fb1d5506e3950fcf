/**
 * A plan is a short program with much code: V8's optimizing compiler, eager by default, spends more CPU seconds on code
 * that runs for a few milliseconds than it saves. Optimising later (a function is optimised after this many bytes of
 * executed bytecode, 15 times the default of Node 20) takes a third off a whole `plan` process and costs long solves
 * nothing that can be measured: their loops pass the mark at once. Figures: bench/results.md.
 */
import { setFlagsFromString } from 'node:v8';

setFlagsFromString('--interrupt-budget=1000000');
