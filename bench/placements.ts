/**
 * Local-shape queries a second: what planning asks of placements most. Budget: a million a second
 * for a sharding known by id. Run: npx tsx bench/placements.ts
 */
import { parseMesh } from '../src/mesh/devices/mesh.ts';
import { parseSharding } from '../src/mesh/sharding/parse.ts';
import { localShape, localShapeAt } from '../src/mesh/sharding/sharding.ts';
import { ShardingSpace } from '../src/mesh/sharding/space.ts';

const QUERIES = 2_000_000;
const SHAPES = Array.from({ length: 64 }, (_, i) => [512 + i, 1024, 768 + 8 * i, 64]);

function rate(name: string, query: (i: number) => readonly number[]): void {
  let sum = 0;
  for (let i = 0; i < QUERIES / 10; i++) sum += query(i)[0];
  const start = process.cpuUsage();
  for (let i = 0; i < QUERIES; i++) sum += query(i)[0];
  const { user, system } = process.cpuUsage(start);
  const perSecond = QUERIES / ((user + system) / 1e6);
  console.log(`${name.padEnd(58)} ${(perSecond / 1e6).toFixed(2)} million/s (checksum ${sum})`);
}

for (const text of ['dp=8,tp=8', 'pp=4,dp=8,cp=2,tp=8']) {
  const mesh = parseMesh(text);
  const space = new ShardingSpace(mesh);
  const plain = Int32Array.from(space.enumerate(4, { partialOps: ['sum'] }));
  rate(`${text}: by id, all ${plain.length} plain shardings`, (i) =>
    space.localShape(plain[i % plain.length], SHAPES[i & 63]),
  );
  const rest = 'R'.repeat(mesh.rank - 2);
  const special = ['S(0)[1]S(0)[0]', '_S(0, 4)S(1)', 'P(sum)S(2)'].map((t) =>
    space.parse(`${t}${rest}`),
  );
  rate(`${text}: by id, ordered and strided`, (i) =>
    space.localShape(special[i % 3], SHAPES[i & 63]),
  );
  const shardings = ['S(0)S(1)', 'S(0)[1]S(0)[0]', '_S(2, 4)S(2)'].map((t) =>
    parseSharding(`${t}${rest}`, mesh),
  );
  rate(`${text}: of a sharding, largest rank`, (i) =>
    localShape(shardings[i % 3], mesh, SHAPES[i & 63]),
  );
  rate(`${text}: of a sharding, one rank`, (i) =>
    localShapeAt(shardings[i % 3], mesh, SHAPES[i & 63], i % mesh.size),
  );
}
