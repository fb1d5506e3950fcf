import { readFileSync } from 'node:fs';

import { describe, expect, it } from 'vitest';

import { readShell } from '../../../src/trainers/shell/read-shell.ts';
import { textOf, unknownIn } from '../../../src/trainers/shell/value.ts';
import { refusal } from '../../support/thrown.ts';

/** Recorded by `record_shell.py`: bash runs each script, and `job` prints its words. */
const RECORDED = JSON.parse(
  readFileSync(new URL('../../fixtures/trainers/shell.json', import.meta.url), 'utf8'),
) as readonly { readonly script: string; readonly words: readonly (readonly string[])[] }[];

/** The words of each `job`; those that only the run knows behind a question mark. */
const jobs = (script: string): string[][] =>
  readShell(script, 'job.sh')
    .commands.filter(({ words }) => textOf(words[0].value) === 'job')
    .map(({ words }) =>
      words
        .slice(1)
        .map(({ value }) => `${unknownIn(value) === undefined ? '' : '?'}${textOf(value)}`),
    );

describe('the words that a shell script gives to a command', () => {
  it.each(RECORDED)('are those of bash: $script', ({ script, words }) => {
    expect(jobs(script)).toEqual(words);
  });

  it('nothing is executed: output, files, the environment and arguments of the script stay unknown', () => {
    expect(jobs('X=$(date); job $X `pwd` $HOME "$@" $1 <(ls) {Z..a} $RANDOM')).toEqual([
      ['?$(date)', '?`pwd`', '?$HOME', '?$@', '?$1', '?<(ls)', '?{Z..a}', '?$RANDOM'],
    ]);
    expect(jobs('i=0; while [ -f x$i ]; do i=$((i+1)); done; job $i')).toEqual([['?${i}']]);
    expect(jobs('f() { [ -f x ] && echo a; }; job $(f) $(g) $(echo 1 | bc)')).toEqual([
      ['?$(f)', '?$(g)', '?$(echo 1 | bc)'],
    ]);
    expect(jobs('declare -A M=([a]=1 [b]=2); job ${M[@]} ${!M[@]} ${M[$K]}')).toEqual([
      ['?${M[@]}', '?${!M[@]}', '?${M[$K]}'],
    ]);
    expect(jobs('i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done; job $i')).toEqual([['?${i}']]);
    expect(jobs('read X < file; job $X')).toEqual([['?$X']]);
    expect(jobs('job {1..99999} $(expr a : b) $(expr 1 / 0) $(expr $U + 1)')).toEqual([
      ['?{1..99999}', '?$(expr a : b)', '?$(expr 1 / 0)', '?$(expr $U + 1)'],
    ]);
    expect(jobs('X=aé; job ${X/[[:alpha:]]/} ${X/[[=a=]]/} ${X/a/&b} ${X%@(a|b)}')).toEqual([
      ['?${X/[[:alpha:]]/}', '?${X/[[=a=]]/}', '?${X/a/&b}', '?${X%@(a|b)}'],
    ]);
    expect(jobs('A=([1]=x [0]=y); job "${A[@]}"')).toEqual([['?$A']]);
    // Any element may be the one that is set.
    expect(jobs('A=(a b c); A[$U]=d; job "${A[@]}" ${A[0]}')).toEqual([['?$A', '?${A[0]}']]);
  });

  it('a loop that may end after any of its trips leaves nothing that is known', () => {
    const body = (end: string): string =>
      `A=; B=; for i in 1 2; do B=x; [ -f $i ] && ${end}; A=$i; done; job $A $B`;
    expect(jobs(body('break'))).toEqual([['?${A}', '?${B}']]);
    expect(jobs(body('continue'))).toEqual([['?${A}', '?${B}']]);
    expect(jobs('for i in 1 2; do while read l; do break; done; A=$i; done; job $A')).toEqual([
      ['2'],
    ]);
  });

  it('of branches that the script does not choose between, what they agree on is kept', () => {
    const script = (branch: string): string =>
      `A=(a b); X=1; if [ -f y ]; then ${branch}; fi; job $X "\${A[@]}"`;
    expect(jobs(script('A+=(c); Y=2'))).toEqual([['1', 'a', 'b', '?${A[@]}']]);
    expect(jobs(script('X=2'))).toEqual([['?${X}', 'a', 'b']]);
    // A branch that ends the script decides nothing for what follows.
    expect(jobs(script('X=2; exit 1'))).toEqual([['1', 'a', 'b']]);
    expect(jobs('S="a b"; [[ -d y ]] && S="$S c"; job $S')).toEqual([['a', 'b', '?${S}']]);
  });

  it('what hangs on a condition that the script cannot decide says which', () => {
    const script =
      'if [ -f y ] && true; then X=2; fi; case $(hostname) in a) Y=1;; esac; job $X $Y';
    const [{ words }] = readShell(script, 'job.sh').commands.slice(-1);
    expect(words.slice(1).map(({ value }) => unknownIn(value)?.why)).toEqual([
      "which depends on '[ -f y ] && true'",
      "which depends on '$(hostname)'",
    ]);
  });

  it('a condition on a name that nothing sets is decided without it, and the name is told', () => {
    const script = 'if [ -n "$FSDP" ]; then X=1; else X=2; fi; job $X';
    expect(jobs(script)).toEqual([['2']]);
    expect(readShell(script, 'job.sh').assumedUnset).toMatchObject([{ name: 'FSDP' }]);
    // Where the script would end, the environment does set it.
    const needed = 'if [ -z "$DATA" ]; then echo missing; exit 1; fi; job x';
    expect(jobs(needed)).toEqual([['x']]);
    expect(readShell(needed, 'job.sh').assumedUnset).toEqual([]);
  });

  it('a script is read as called without arguments where a condition asks for them, and that is told', () => {
    const asked = 'if [ $# -gt 0 ]; then X=$1; fi; for a in "$@"; do X=$a; done; job $X "$@"';
    expect(jobs(`X=1; ${asked}`)).toEqual([['1', '?$@']]);
    expect(readShell(asked, 'job.sh').assumedUnset.map(({ name }) => name)).toEqual(['#', '@']);
    // What names it must have decides nothing.
    expect(jobs('if [ $# -lt 1 ]; then exit 1; fi; TP=$1; job $TP')).toEqual([['?$1']]);
  });

  it('another shell sees the variables that are exported, and of others it is told why not', () => {
    const [{ words }] = readShell("X=1; srun bash -c 'job $X'", 'job.sh').commands;
    expect(unknownIn(words[1].value)?.why).toBe('which the file sets and does not export');
  });

  it('what an expression of open result may set is not known after it', () => {
    expect(jobs('x=1; (( U > 1 && (x = 3) )); y=1; job $x $(( U ? (y = 2) : 0 )) $y')).toEqual([
      ['?$x', '?$(( U ? (y = 2) : 0 ))', '?$y'],
    ]);
    expect(jobs('[[ ab =~ (a|ab)(c|bcd)?$ ]]; job ${BASH_REMATCH[1]}')).toEqual([
      ['?${BASH_REMATCH[1]}'],
    ]);
    expect(jobs('mapfile -t A < x; A+=(b); job "${A[1]}" ${A[-1]} ${A[3]:-d} ${U[1]:-d}')).toEqual([
      ['?${A[1]}', '?${A[-1]}', '?${A[3]:-d}', 'd'],
    ]);
  });

  it.each([
    [
      'f() { shift $U; }; f a',
      /job\.sh:1:7: E_UNSUPPORTED shift \$U by a number that the file does/,
    ],
    [
      'declare -l X=A',
      /job\.sh:1:9: E_UNSUPPORTED declare -l changes the case of what is assigned/,
    ],
    ['job "a\n', /job\.sh:1:5: E_SYNTAX not a shell script: unterminated double quote/],
    ['X=1\nIFS=,\n', /job\.sh:2:1: E_UNSUPPORTED IFS changes how words are split/],
    ['declare -n R=A\n', /job\.sh:1:12: E_UNSUPPORTED R=A is another name of a variable/],
    ['for i in 1; do break 2; done', /job\.sh:1:16: E_UNSUPPORTED break 2 ends several loops/],
    ['f(){ f; }; f', /E_LIMIT more than 16 scripts or calls in each other/],
    [
      'A=aaaaaaaaaaaaaaaa; for i in 1 2 3 4 5 6 7 8 9 a b c d e f g h i; do A=$A$A; done',
      /E_LIMIT A grows beyond/,
    ],
  ])('refuses with line and column: %j', (script, wanted) => {
    expect(refusal(() => readShell(script, 'job.sh')).headline).toMatch(wanted);
  });
});
