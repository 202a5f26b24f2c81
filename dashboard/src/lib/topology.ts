import type { Mesh, MeshPath, Status } from './document';
import { seconds } from './rates';

export type NodeKind = 'self' | 'neighbour' | 'far';

export interface TopologyNode {
  id: string;
  kind: NodeKind;
  /** Whether it is heard, or a path to it carries packets. */
  up: boolean;
  paths: MeshPath[];
}

export interface TopologyLink {
  source: string;
  target: string;
  up: boolean;
  /** Names of this node's interfaces there. */
  names: string[];
  /** Whether a path in use goes over it. */
  used: boolean;
}

export interface Topology {
  self: string;
  nodes: TopologyNode[];
  links: TopologyLink[];
}

/** What one node knows of its mesh: neighbours, and the nodes on its paths. */
export function ofMesh(mesh: Mesh): Topology {
  const nodes = new Map<string, TopologyNode>();
  const links = new Map<string, TopologyLink>();
  const node = (id: string, kind: NodeKind, up: boolean): TopologyNode => {
    let known = nodes.get(id);
    if (!known) nodes.set(id, (known = { id, kind, up, paths: [] }));
    if (kind === 'neighbour' && known.kind === 'far') known.kind = kind;
    known.up ||= up;
    return known;
  };
  const link = (a: string, b: string, up: boolean, used: boolean, name?: string) => {
    const [source, target] = a < b ? [a, b] : [b, a];
    const key = source + ' ' + target;
    let known = links.get(key);
    if (!known) links.set(key, (known = { source, target, up, names: [], used }));
    known.up ||= up;
    known.used ||= used;
    if (name && !known.names.includes(name)) known.names.push(name);
  };
  node(mesh.node, 'self', true);
  for (const neighbour of mesh.neighbours) {
    node(neighbour.node, 'neighbour', neighbour.up);
    link(mesh.node, neighbour.node, neighbour.up, false, neighbour.link);
  }
  for (const destination of mesh.destinations) {
    node(destination.node, 'far', destination.paths.length > 0).paths = destination.paths;
    for (const path of destination.paths) {
      const hops = hopsOf(mesh.node, destination.node, path);
      hops.forEach((hop, index) => {
        node(hop, 'far', true);
        if (index > 0)
          link(hops[index - 1], hop, true, path.carries, index === 1 ? path.link : undefined);
      });
    }
  }
  return { self: mesh.node, nodes: [...nodes.values()], links: [...links.values()] };
}

/** The nodes of a path in order, both ends with them. */
export const hopsOf = (from: string, to: string, path: MeshPath): string[] => [
  from,
  ...path.relays,
  to,
];

/** The names of classes of traffic, as docs/mesh.md has them. */
export const CLASSES = ['control', 'bounded delay', 'bulk', 'background'];

/** The document of meshviewer (`meshviewer.json`) of a topology; what a node does not know is left out. */
export function meshviewer(topology: Topology, status: Status | null, at: Date): unknown {
  const time = at.toISOString().replace('Z', '+0000').replace(/\.\d+/, '');
  const first = new Date(at.getTime() - (status ? seconds(status) * 1000 : 0))
    .toISOString()
    .replace('Z', '+0000')
    .replace(/\.\d+/, '');
  const id = (address: string) => address.replaceAll(':', '');
  return {
    timestamp: time,
    nodes: topology.nodes.map((node) => ({
      firstseen: first,
      lastseen: time,
      is_online: node.up,
      is_gateway: node.kind === 'self',
      clients: 0,
      addresses: [],
      node_id: id(node.id),
      mac: node.id,
      hostname: node.id,
    })),
    links: topology.links
      .filter((link) => link.up)
      .map((link) => ({
        type: 'other',
        source: id(link.source),
        target: id(link.target),
        source_tq: 1,
        target_tq: 1,
        source_addr: link.source,
        target_addr: link.target,
      })),
  };
}
