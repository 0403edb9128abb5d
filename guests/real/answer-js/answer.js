// Answers each request with its path.

addEventListener('fetch', (event) => {
  const { pathname } = new URL(event.request.url);
  const headers = { 'content-type': 'text/plain' };
  event.respondWith(new Response(`hello ${pathname}\n`, { headers }));
});
