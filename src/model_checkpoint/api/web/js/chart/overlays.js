// Bands (from, to, label) and rules (x or y, label) drawn over the curves, on uPlot's canvas.
import { css, fade } from './colours.js';

function band(pen, u, { from, to, label }, ratio) {
  const left = u.valToPos(from, 'x', true);
  const right = u.valToPos(to, 'x', true);
  pen.fillStyle = fade(css('--warn'), 0.13);
  pen.fillRect(left, u.bbox.top, right - left, u.bbox.height);
  pen.fillStyle = css('--warn');
  pen.fillText(label, left + 4 * ratio, u.bbox.top + 12 * ratio);
}

function rule(pen, u, { x, y, label, color = '--bad' }, ratio) {
  const box = u.bbox;
  pen.strokeStyle = pen.fillStyle = css(color);
  pen.setLineDash([5 * ratio, 4 * ratio]);
  pen.lineWidth = ratio;
  pen.beginPath();
  if (y != null) {
    const at = u.valToPos(y, 'y', true);
    pen.moveTo(box.left, at);
    pen.lineTo(box.left + box.width, at);
    pen.stroke();
    const above = at - 5 * ratio >= box.top + 10 * ratio;
    pen.fillText(label, box.left + 6 * ratio, above ? at - 5 * ratio : at + 14 * ratio);
  } else {
    const at = u.valToPos(x, 'x', true);
    pen.moveTo(at, box.top);
    pen.lineTo(at, box.top + box.height);
    pen.stroke();
    pen.fillText(label, Math.min(at + 5 * ratio, box.left + box.width - pen.measureText(label).width), box.top + 12 * ratio);
  }
}

export const overlay =
  (bands = [], rules = []) =>
  (u) => {
    const pen = u.ctx;
    const ratio = devicePixelRatio;
    pen.save();
    pen.textAlign = 'left'; // uPlot leaves its own alignment behind
    pen.textBaseline = 'alphabetic';
    pen.font = `${11 * ratio}px sans-serif`;
    bands.forEach((one) => band(pen, u, one, ratio));
    rules.forEach((one) => rule(pen, u, one, ratio));
    pen.restore();
  };
