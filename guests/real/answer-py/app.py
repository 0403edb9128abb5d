"""Answers each request with its path."""

from componentize_py_types import Ok
from wit_world import exports
from wit_world.imports.types import Fields, OutgoingBody, OutgoingResponse, ResponseOutparam


class IncomingHandler(exports.IncomingHandler):
    def handle(self, request, response_out):
        response = OutgoingResponse(Fields.from_list([("content-type", b"text/plain")]))
        body = response.body()
        ResponseOutparam.set(response_out, Ok(response))
        with body.write() as stream:
            text = f"hello {request.path_with_query() or ''}\n"
            stream.blocking_write_and_flush(text.encode())
        OutgoingBody.finish(body, None)
