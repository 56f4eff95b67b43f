// Which pages there are. Their modules are imported when first opened, so the first view needs few files.
// key, title, icon, letter after g
export const NAV = [
  ['runs', 'Runs', 'runs', 'r'],
  ['checkpoints', 'Checkpoints', 'box', 'c'],
  ['compare', 'Compare', 'compare', 'o'],
  ['lineage', 'Lineage', 'tree', 'l'],
  null,
  ['storage', 'Storage', 'disk', 's'],
  ['integrity', 'Integrity', 'shield', 'i'],
  ['saves', 'Save timeline', 'clock', 't'],
];

const MODULES = {
  runs: () => import('../pages/runs.js'),
  run: () => import('../pages/run/run.js'),
  checkpoints: () => import('../pages/checkpoints.js'),
  checkpoint: () => import('../pages/checkpoint/checkpoint.js'),
  compare: () => import('../pages/compare.js'),
  diff: () => import('../pages/diff.js'),
  storage: () => import('../pages/storage/storage.js'),
  integrity: () => import('../pages/integrity.js'),
  lineage: () => import('../pages/lineage.js'),
  saves: () => import('../pages/saves.js'),
  kit: () => import('../pages/kit.js'), // not in the rail: for the tests and for who builds pages
};

export const SECTION = { run: 'runs', checkpoint: 'checkpoints', diff: 'checkpoints' };
export const exists = (name) => Object.hasOwn(MODULES, name);
const loaded = {};
export const page = (name) => loaded[name];
export const load = async (name) => (loaded[name] ??= (await MODULES[name]()).default);
