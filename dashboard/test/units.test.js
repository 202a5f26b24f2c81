// The parts without markup: merge patches, histograms, rates, layouts, captures.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { createServer } from 'vite';
import { recorded } from '../replay/server.js';
import { advance, difference } from '../replay/moving.js';

const vite = await createServer({
  server: { middlewareMode: true },
  logLevel: 'error',
  appType: 'custom',
});
after(() => vite.close());
const load = (name) => vite.ssrLoadModule(`/src/lib/${name}.ts`);
const { merge } = await load('merge');
const { quantile, since } = await load('histogram');
const { flows, rates } = await load('rates');
const { scaled, delay, duration } = await load('format');
const { moment } = await load('time');
const { octets, capture } = await load('packet');
const { pairs, tap } = await load('tap');
const { draw, mean, means } = await load('layers');
const { filled, typed } = await load('form');
const { way } = await load('network');
const { attachment } = await load('attach');
const { ofMesh, meshviewer } = await load('topology');
const { ground } = await load('granted');
const { curve } = await load('readings');
const { causes } = await load('health');
const { eventsOf, stateOf } = await load('devices');
const { marksOf, path, scale, spread, steps, TIME_STEPS } = await load('plot');

test('the time of a layer is the mean of what was measured between two looks', () => {
  assert.equal(mean({ packets: 10, ns: 500 }, { packets: 30, ns: 2500 }), 100);
  assert.equal(mean(undefined, { packets: 4, ns: 6 }), 1.5, 'at the first look all of it');
  assert.equal(mean({ packets: 90, ns: 900 }, { packets: 2, ns: 60 }), 30, 'it began anew');
  for (const nothing of [undefined, null, { packets: 10, ns: 500 }])
    assert.equal(mean({ packets: 10, ns: 500 }, nothing), null);
  const [before, now] = [{ measured: { packets: 1, ns: 7 } }, { measured: { packets: 2, ns: 16 } }];
  assert.deepEqual(means([before, before], [now, before], [null, 42]), [9, 42]);
  assert.deepEqual(means(undefined, [{}, now], []), [null, 8]);
});

test('a change has the fields that are filled in', () => {
  const form = new FormData();
  for (const [name, value] of [['to', ' 198.51.100.0/24 '], ['via', ''], ['link', '  ']])
    form.append(name, value);
  assert.deepEqual(filled(form), { to: '198.51.100.0/24' });
  form.append('port', ' 53 ');
  assert.deepEqual(typed(form), { to: '198.51.100.0/24', port: 53 });
});

test('an order to attach has numbers, and conditions by themselves', () => {
  const order = (fields) => {
    const form = new FormData();
    for (const [name, value] of Object.entries(fields)) form.append(name, value);
    return attachment(form);
  };
  const at = { at: 'ether:ipv4', side: 'receive', link: '' };
  assert.deepEqual(order({ handler: 'count', ...at }), {
    handler: 'count',
    at: 'ether:ipv4',
    side: 'receive',
  });
  const limit = order({ handler: 'rate-limit', ...at, link: 'lan', rate: ' 100', burst: '' });
  assert.deepEqual([limit.rate, limit.burst, limit.link], [100, undefined, 'lan']);
  const drop = order({ handler: 'drop', ...at, source: '192.0.2.0/24', protocol: '', port: '53' });
  assert.deepEqual(drop.match, { source: '192.0.2.0/24', port: 53 });
  assert.equal('port' in drop, false);
});

test('the way of a route is in words', () => {
  const route = { to: 'default', kind: 'via', via: null, link: null, next_hops: [], origin: 'kernel' };
  assert.equal(way({ ...route, via: '192.0.2.9', link: 'lan' }), '192.0.2.9 by lan');
  assert.equal(way({ ...route, kind: 'connected', link: 'lan' }), 'connected by lan');
  assert.equal(way({ ...route, kind: 'blackhole' }), 'blackhole');
  const hop = { via: '192.0.2.9', link: 'lan', weight: 1, flows: 1, left_out: false };
  const hops = [hop, { ...hop, via: null, link: 'wan', left_out: true }];
  const several = way({ ...route, kind: 'several', next_hops: hops });
  assert.equal(several, '192.0.2.9 by lan; by wan, left out');
});

test('the ground of a look is in words', () => {
  const rule = { by: 'policy', as: 'Cb', policy: 'gw/p', rule: 3 };
  const said = ground({ ...rule, originators: ['Ca', 'Cb'], operations: ['retrieve'] });
  assert.equal(said, ', rule 3: Ca, Cb may retrieve');
  assert.match(ground({ by: 'owner', as: 'Cb' }), /creator/);
  assert.match(ground({ by: 'role', role: 'operator', as: '/gw' }), /role operator.*\/gw/);
  assert.equal(ground({ by: 'something-new', as: 'Cb' }), 'by something-new');
});

// RFC 7396, appendix A.
test('merge patches do what the examples of the RFC say', () => {
  const examples = [
    ['{"a":"b"}', '{"a":"c"}', '{"a":"c"}'],
    ['{"a":"b"}', '{"b":"c"}', '{"a":"b","b":"c"}'],
    ['{"a":"b"}', '{"a":null}', '{}'],
    ['{"a":"b","b":"c"}', '{"a":null}', '{"b":"c"}'],
    ['{"a":["b"]}', '{"a":"c"}', '{"a":"c"}'],
    ['{"a":"c"}', '{"a":["b"]}', '{"a":["b"]}'],
    ['{"a":{"b":"c"}}', '{"a":{"b":"d","c":null}}', '{"a":{"b":"d"}}'],
    ['{"a":[{"b":"c"}]}', '{"a":[1]}', '{"a":[1]}'],
    ['["a","b"]', '["c","d"]', '["c","d"]'],
    ['{"a":"b"}', '["c"]', '["c"]'],
    ['{"a":"foo"}', 'null', 'null'],
    ['{"a":"foo"}', '"bar"', '"bar"'],
    ['{"e":null}', '{"a":1}', '{"e":null,"a":1}'],
    ['[1,2]', '{"a":"b","c":null}', '{"a":"b"}'],
    ['{}', '{"a":{"bb":{"ccc":null}}}', '{"a":{"bb":{}}}'],
  ];
  for (const [target, patch, result] of examples) {
    assert.deepEqual(merge(JSON.parse(target), JSON.parse(patch)), JSON.parse(result));
  }
});

test('a member called __proto__ changes no prototype', () => {
  const merged = merge({}, JSON.parse('{"__proto__":{"evil":1}}'));
  assert.equal({}.evil, undefined);
  assert.equal(merged.evil, undefined);
});

test('the differences of a recording are its next document', async () => {
  const { status } = await recorded('router');
  const [before, after] = [advance(status, 0.2), advance(status, 0.7)];
  assert.deepEqual(merge(before, difference(before, after)), after);
});

test('quantiles are of what came between two histograms', () => {
  const grown = since(
    [[10, 5]],
    [
      [10, 8],
      [100, 96],
      [1000, 1],
    ],
  );
  assert.deepEqual(grown, [
    [10, 3],
    [100, 96],
    [1000, 1],
  ]);
  assert.equal(quantile(grown, 0.5), 100);
  assert.equal(quantile(grown, 0.995), 1000);
  assert.equal(quantile([], 0.5), null);
  // A gateway that was started anew.
  assert.deepEqual(since([[10, 5]], [[10, 1]]), [[10, 1]]);
});

test('rates are differences over the time of the gateway', async () => {
  const { status, seconds } = await recorded('router');
  const found = rates(status[0], status[1], 0);
  const count = (of, name) => of.links[0].counters.find((pair) => pair[0] === name)[1];
  const expected = (count(status[1], 'received') - count(status[0], 'received')) / seconds;
  assert.ok(Math.abs(found.links.get('lan').received - expected) < 0.01);
  assert.equal(rates(status[0], status[0], 0), null);
});

test('what passes a gateway without links are reports and requests', async () => {
  const { status } = await recorded('health');
  const names = flows(status[1]).map((flow) => flow.name);
  assert.deepEqual(names, ['requests to cse', 'reports of devices']);
});

test('numbers and times are short', () => {
  const numbers = [0, 0.26, 12.4, 999, 1000, 123_456, 2.5e6].map((value) => scaled(value));
  assert.deepEqual(numbers, ['0', '0.3', '12.4', '999', '1.0 k', '123 k', '2.5 M']);
  assert.deepEqual([950, 21_500, 3.2e6, 2e9].map(delay), ['950 ns', '21.5 µs', '3.2 ms', '2.0 s']);
  assert.deepEqual([59, 61, 3661, 90_000].map(duration), [
    '59 s',
    '1 min 1 s',
    '1 h 1 min',
    '1 d 1 h',
  ]);
  // TS-0004 §6.3.3: basic format of ISO 8601, UTC.
  assert.equal(moment('20261124T132204,5'), Date.UTC(2026, 10, 24, 13, 22, 4, 500));
});

test('octets are compared from the end, as headers come and go in front', () => {
  const states = octets('aabbcc', '01aabbcd').map((octet) => octet.state);
  assert.deepEqual(states, ['fresh', '', '', 'changed']);
  assert.deepEqual(
    octets('aabb', 'bb').map((octet) => octet.state),
    [''],
  );
});

test('a packet is saved as a capture file', () => {
  const file = Buffer.from(capture('0102', true, 1500));
  // Magic number and version 2.4; at its end the lengths and the octets.
  assert.equal(file.subarray(0, 8).toString('hex'), 'a1b2c3d400020004');
  assert.equal(
    file.subarray(20).toString('hex'),
    '00000001' + '00000001' + '0007a120' + '00000002'.repeat(2) + '0102',
  );
});

test('layers stand in columns by their way up', async () => {
  const { graph } = await recorded('router');
  const { boxes, lines } = draw(graph[1]);
  const x = (name) => boxes.find((box) => box.name === name).x;
  assert.ok(x('device') < x('ethernet') && x('ethernet') < x('ipv4') && x('ipv4') < x('icmpv4'));
  assert.ok(lines.every((line) => line.edges.length > 0));
  const places = new Set(boxes.map((box) => `${box.x} ${box.y}`));
  assert.equal(places.size, boxes.length);
});

test('the topology has the nodes of the paths, and meshviewer reads it', async () => {
  const { mesh } = await recorded('mesh');
  const topology = ofMesh(mesh[1]);
  // Figure 6 of the Lilith paper: S and T joined by three paths of three links.
  assert.equal(topology.nodes.length, 8);
  assert.equal(topology.links.length, 9);
  const saved = meshviewer(topology, null, new Date(0));
  assert.equal(saved.timestamp, '1970-01-01T00:00:00+0000');
  const ids = new Set(saved.nodes.map((node) => node.node_id));
  assert.ok(saved.links.every((link) => ids.has(link.source) && ids.has(link.target)));
});

test('readings that are no numbers make no curve', () => {
  const reading = (value) => ({
    name: 'x',
    created: '20261124T132204,0',
    content: { value, unit: '%' },
  });
  assert.equal(curve([reading('standing'), reading('')]), null);
  assert.deepEqual(curve([reading('97')]).values, [97]);
  assert.equal(curve([{ ...reading('1'), content: '{"value":"98"}' }]).values[0], 98);
});

test('a curve has a gap where no reading came for a few usual intervals', () => {
  const at = (seconds) => ({ name: 'x', created: new Date(seconds * 1000).toISOString(), content: 7 });
  const drawn = curve([0, 5, 10, 15, 135, 140].map(at));
  assert.deepEqual(drawn.times, [0, 5, 10, 15, 75, 135, 140]);
  assert.deepEqual(drawn.values, [7, 7, 7, 7, null, 7, 7]);
  for (const none of [[0], [0, 300], [0, 60, 120, 300], [0, 0.1, 0.2, 9, 9.1]])
    assert.deepEqual(curve(none.map(at)).times, none, 'late, but no gap');
});

test('a device has a state, and an application entity has none', () => {
  const text = (associated, silent) => stateOf({ associated, silent })?.text;
  assert.equal(text(true, false), 'associated');
  assert.equal(text(false, false), 'not associated');
  assert.equal(text(false, true), 'silent');
  assert.equal(text(true, true), 'silent');
  assert.equal(stateOf({ associated: null, silent: null, last_heard: null }), null);
});

test('events of a device are those that name it, without who has read its values', () => {
  const event = (kind, text, fields = {}) => ({ kind, text, fields });
  const events = [
    event('web-read', 'ops reads values of "/gw/phd-0247000100000001/spo2"'),
    event('device-silent', 'nothing is heard', { device: '0247000100000001' }),
    event('device-associated', '0247000100000001 associates'),
    event('device-associated', '0247000100000002 associates'),
  ];
  const found = eventsOf({ name: 'phd-0247000100000001' }, events);
  assert.deepEqual(found, [events[1], events[2]]);
});

test('no two marks of an axis read the same', () => {
  assert.deepEqual(marksOf([0, 1], 3, delay), [0, 1], 'an empty chart');
  assert.deepEqual(marksOf([0, 10], 4, delay), [0, 5, 10]);
  assert.deepEqual(marksOf([0, 1], 3, String), [0, 0.5, 1]);
});

test('marks of an axis are at round values, at most so many distances apart', () => {
  assert.deepEqual(steps([0, 10], 4), [0, 5, 10]);
  assert.deepEqual(steps([0, 0.23], 3), [0, 0.1, 0.2]);
  assert.deepEqual(steps([-3, 7], 5), [-2, 0, 2, 4, 6]);
  assert.deepEqual(steps([1_000, 1_600], 5, TIME_STEPS), [1_080, 1_200, 1_320, 1_440, 1_560]);
  assert.deepEqual(steps([1_000, 1_060], 6, TIME_STEPS), [1_000, 1_010, 1_020, 1_030, 1_040, 1_050, 1_060]);
  assert.ok(steps([0, Infinity], 4).length <= 5);
});

test('an axis shows all values with some room', () => {
  assert.deepEqual(spread([], true), [0, 1]);
  assert.deepEqual(spread([null, 0], true), [0, 1]);
  assert.deepEqual(spread([10, null, 20], false), [8.5, 21.5]);
  assert.deepEqual(spread([36], false), [30.6, 41.4]);
  assert.deepEqual(spread([], false), [0, 1]);
});

test('a curve has a gap where there is no value', () => {
  const [times, values] = [[0, 1, 2, 3], [1, null, 3, 2]];
  const [x, y] = [scale([0, 3], [0, 30]), scale([0, 4], [40, 0])];
  assert.equal(path(times, values, x, y), 'M0 30h0M20 10L30 20');
  assert.equal(path(times, values, x, y, 40), 'M0 40V30V40ZM20 40V10L30 20V40Z');
  assert.equal(path(times, values, x, y, -1), 'M0 30h0M20 10h0M30 20h0');
  assert.equal(path([], undefined, x, y, 40), '');
});

test('causes name what is wrong', async () => {
  const { status } = await recorded('router');
  assert.deepEqual(causes(status[1], null, undefined), []);
  const bad = structuredClone(status[1]);
  Object.assign(bad.links[0], { up: false, state: 'down' });
  bad.planes.running = false;
  bad.parts = [
    {
      name: 'cse',
      words: [],
      gauges: [],
      counters: [],
      alarms: [{ name: 'disk-short', raised: 1 }],
    },
  ];
  const found = causes(bad, null, undefined);
  const levels = found.map((cause) => cause.level);
  assert.deepEqual(levels, ['error', 'error', 'warning']);
  assert.match(found.map((cause) => cause.text).join(), /data plane.*lan.*disk short/);
});

test('a tap gives each packet while it passes, and says how it ended', async () => {
  const packet = { at_us: 5, side: 'receive', link: 'lan', len: 60, octets: '0102' };
  const event = (kind, data) => `event: ${kind}\ndata: ${JSON.stringify(data)}\n\n`;
  const before = globalThis.fetch;
  const answers = [
    new Response(event('packet', packet) + event('end', { packets: 1, missed: 2 })),
    new Response(event('error', { error: 'no such position' })),
    new Response('{"error":"two run"}', { status: 409 }),
  ];
  const asked = [];
  globalThis.fetch = async (path, options) => (asked.push([path, options]), answers.shift());
  try {
    const request = { at: 'frame', side: 'receive', which: { link: 'lan' } };
    const taken = [];
    const { signal } = new AbortController();
    const take = (one) => taken.push(one);
    assert.deepEqual(await tap(request, signal, take), { packets: 1, missed: 2 });
    assert.deepEqual(taken, [packet]);
    assert.deepEqual([asked[0][0], JSON.parse(asked[0][1].body)], ['/api/v1/tap', request]);
    await assert.rejects(tap(request, signal, take), /no such position/);
    await assert.rejects(tap(request, signal, take), /two run/);
  } finally {
    globalThis.fetch = before;
  }
  assert.equal(pairs('010203', 2), '01 02 …');
  assert.equal(pairs('0102', 2), '01 02');
  assert.equal(pairs('', 2), '');
});
