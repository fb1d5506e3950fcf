// Lines of TypeScript in each room of src/ (folders, and the files beside them as ".").
// Usage: npm run size            prints them beside the recorded ones
//        npm run size -- --write records them in scripts/size.json; test/size.test.ts holds a room
//        to the record
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const RECORD = join(here, 'size.json');

/** @returns {Record<string, { files: number, lines: number }>} by room, sorted */
export function roomSizes(src = join(here, '..', 'src')) {
  /** @type {Record<string, { files: number, lines: number }>} */
  const rooms = {};
  for (const path of readdirSync(src, { recursive: true, encoding: 'utf8' }).sort()) {
    if (!/\.(ts|mjs)$/.test(path)) continue;
    const parts = path.split(/[\\/]/);
    const room = parts.length === 1 ? '.' : parts[0];
    const size = (rooms[room] ??= { files: 0, lines: 0 });
    size.files++;
    size.lines += readFileSync(join(src, path), 'utf8').split('\n').length - 1;
  }
  return rooms;
}

/** @returns {Record<string, number>} lines by room */
export const recordedLines = () => JSON.parse(readFileSync(RECORD, 'utf8'));

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const rooms = roomSizes();
  if (process.argv.includes('--write')) {
    const lines = Object.fromEntries(
      Object.entries(rooms).map(([room, size]) => [room, size.lines]),
    );
    writeFileSync(RECORD, `${JSON.stringify(lines, null, 2)}\n`);
  }
  const recorded = recordedLines();
  console.log('room           files    lines  recorded');
  for (const [room, { files, lines }] of Object.entries(rooms))
    console.log(
      `${room.padEnd(12)} ${String(files).padStart(7)} ${String(lines).padStart(8)} ` +
        `${String(recorded[room] ?? '-').padStart(9)}`,
    );
  const sum = Object.values(rooms).reduce((total, { lines }) => total + lines, 0);
  console.log(
    `${'all'.padEnd(12)} ` +
      `${String(Object.values(rooms).reduce((n, { files }) => n + files, 0)).padStart(7)} ` +
      `${String(sum).padStart(8)}`,
  );
}
