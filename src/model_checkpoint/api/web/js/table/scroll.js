// Only the rows in sight are in the document. Rows have one height, so which those are is a division.
import { useState, useEffect } from '../../vendor/preact-htm.js';

const BEYOND = 8; // rows kept above and below what is in sight
const VIRTUAL_FROM = 80;
const AHEAD = 40; // rows before the end at which the next page is asked for

export function useRowsInSight(ref, count, rowHeight, more) {
  const [top, setTop] = useState(0);
  const [tall, setTall] = useState(innerHeight);
  const virtual = count > VIRTUAL_FROM;
  useEffect(() => {
    if (!virtual) return undefined;
    const scroller = document.querySelector('.main');
    let frame = 0;
    const measure = () => {
      frame = 0;
      const box = ref.current?.getBoundingClientRect();
      if (box) setTop(Math.max(0, scroller.getBoundingClientRect().top - box.top));
    };
    const scrolled = () => (frame ||= requestAnimationFrame(measure));
    const resized = () => setTall(innerHeight);
    scroller.addEventListener('scroll', scrolled, { passive: true });
    addEventListener('resize', resized);
    scrolled();
    return () => {
      cancelAnimationFrame(frame);
      scroller.removeEventListener('scroll', scrolled);
      removeEventListener('resize', resized);
    };
  }, [virtual]);
  const view = virtual ? Math.ceil(tall / rowHeight) + 2 * BEYOND : count;
  const from = virtual ? Math.max(0, Math.min(count - view, Math.floor(top / rowHeight) - BEYOND)) : 0;
  const to = Math.min(count, from + view);
  useEffect(() => {
    if (more && virtual && to > count - AHEAD) more();
  }, [to, count, more, virtual]);
  return { from, to };
}
