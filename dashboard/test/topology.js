// How often the topology is drawn: large meshes, and frames counted while the view moves.

/** Nodes, links, and the frames a second that are promised. */
export const FRAMES = [
  [500, 1500, 50],
  [2000, 6000, 25],
];

/** Waits until the layout of so many nodes stands still: the places are remembered then. */
export async function settled(page, nodes) {
  await page.waitForSelector(`text=${nodes} nodes`, { timeout: 20_000 });
  await page.waitForFunction(
    () => Object.keys(localStorage).some((key) => key.includes('places')),
    null,
    { timeout: 60_000 },
  );
}

/** Frames a second while each one zooms a little, so that each draws everything. */
export const frameRate = (page, milliseconds) =>
  page.evaluate(async (milliseconds) => {
    const canvas = document.querySelector('canvas');
    const start = performance.now();
    let frames = 0;
    while (performance.now() - start < milliseconds) {
      const deltaY = frames % 2 ? 4 : -4;
      canvas.dispatchEvent(new WheelEvent('wheel', { deltaY, cancelable: true }));
      await new Promise(requestAnimationFrame);
      frames += 1;
    }
    return (frames * 1000) / (performance.now() - start);
  }, milliseconds);

/** The recorded mesh with as many nodes and links as wanted, all on paths from its node. */
export function meshOf(recording, nodes, links) {
  const [mesh] = structuredClone(recording.mesh);
  let seed = 7;
  const draw = (below) => (seed = (seed * 16_807) % 2_147_483_647) % below;
  const name = (index) =>
    [0x02, 0, 0, 0, index >> 8, index & 255]
      .map((octet) => octet.toString(16).padStart(2, '0'))
      .join(':');
  const path = { ...mesh.destinations[0].paths[0] };
  const near = 12;
  mesh.neighbours = Array.from({ length: near }, (_, index) => ({
    node: name(index + 1),
    link: 'to1',
    up: true,
    since_s: 1,
  }));
  const known = new Set(mesh.neighbours.map(({ node }) => `${mesh.node} ${node}`));
  mesh.destinations = Array.from({ length: nodes - 1 }, (_, index) => ({
    node: name(index + 1),
    paths: [],
  }));
  // Two more links for each node, to earlier ones.
  for (let round = 0; known.size < links; round += 1) {
    const to = (round % (nodes - 1 - near)) + near + 1;
    const from = Math.max(1, to - 1 - draw(Math.min(to - 1, 30)));
    const key = `${name(from)} ${name(to)}`;
    if (known.has(key)) continue;
    known.add(key);
    mesh.destinations[to - 1].paths.push({
      ...path,
      path: key,
      carries: round < nodes,
      relays: [name((from % near) + 1), name(from)],
    });
    known.add(`${name((from % near) + 1)} ${name(from)}`);
  }
  return { ...recording, mesh };
}
