// The files a checkpoint is made of, each with its digest.
import { html } from '../../../vendor/preact-htm.js';
import { bytes, plural } from '../../core/format.js';
import { Table } from '../../table/table.js';
import { Panel } from '../../ui/panel.js';

const COLUMNS = [
  {
    key: 'name',
    label: 'File',
    width: 170,
    prio: 0,
    fixed: true,
    grow: true,
    render: (file) => html`<span class="mono" title=${file.name}>${file.name}</span>`,
  },
  { key: 'bytes', label: 'Bytes', num: true, width: 100, prio: 0, render: (file) => bytes(file.bytes) },
  {
    key: 'digest',
    label: 'Digest',
    width: 420,
    prio: 3,
    render: (file) => html`<code class="muted" title=${file.digest}>${file.digest}</code>`,
  },
];

export function Files({ files }) {
  const total = files.reduce((sum, file) => sum + (file.bytes || 0), 0);
  return html`<${Panel} flush title="Files" sub=${`${plural(files.length, 'file')}, ${bytes(total)}`}>
    <${Table} label="Files" rows=${files} rowKey=${(file) => file.name} columns=${COLUMNS} sub=${(file) => `${bytes(file.bytes)} · ${(file.digest || '').slice(0, 19)}`} />
  <//>`;
}
