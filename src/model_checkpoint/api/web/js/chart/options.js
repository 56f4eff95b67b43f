// Smoothing, log, horizontal axis and zoom: shared by all charts of a page, kept in the address.
import { html, useMemo } from '../../vendor/preact-htm.js';
import { useOption, setOptions } from '../core/address.js';
import { Button } from '../ui/button.js';
import { Segments } from '../ui/choice.js';

export const FIXED = { smooth: 0, log: false, x: 'step', zoom: null };

function readZoom(text) {
  const ends = text.split('~').map(Number);
  return ends.length === 2 && ends.every(Number.isFinite) && ends[0] < ends[1] ? ends : null;
}

export function useChartOptions() {
  const [smooth, setSmooth] = useOption('smooth', '0');
  const [log, setLog] = useOption('log', '');
  const [x] = useOption('x', 'step');
  const [zoomText, setZoomText] = useOption('zoom', '');
  const zoom = useMemo(() => readZoom(zoomText), [zoomText]);
  return {
    smooth: Math.min(0.98, Math.max(0, +smooth || 0)),
    setSmooth,
    log: log === '1',
    setLog,
    x: ['step', 'time', 'wall'].includes(x) ? x : 'step',
    setX: (kind) => setOptions({ x: kind === 'step' ? null : kind, zoom: null }),
    zoom,
    setZoom: (range) => setZoomText(range ? range.map((v) => Math.round(v)).join('~') : ''),
  };
}

const AXES = [
  ['step', 'Step'],
  ['time', 'Run time'],
  ['wall', 'Clock'],
];

export const ChartTools = ({ options }) =>
  html`<div class="chart-tools">
    <label class="ctl">
      Smoothing<input
        type="range"
        min="0"
        max="0.98"
        step="0.02"
        value=${options.smooth}
        onInput=${(event) => options.setSmooth(event.target.value)}
        aria-valuetext=${options.smooth || 'off'}
      /><span class="mono smoothing">${options.smooth ? options.smooth.toFixed(2) : 'off'}</span>
    </label>
    <${Button} aria-pressed=${String(options.log)} onClick=${() => options.setLog(options.log ? '' : '1')}>Log<//>
    <${Segments} label="Horizontal axis" value=${options.x} onChange=${options.setX} options=${AXES} />
    ${options.zoom && html`<${Button} icon="x" onClick=${() => options.setZoom(null)}>Reset zoom<//>`}
  </div>`;
