// Calls of a server by @grpc/grpc-js, one for each name; each writes its outcome as a line of JSON.
//
//     node grpc_js.cjs NODE_MODULES PROTO HOST:PORT NAME [AUTHORITY]
const [modules, proto, target, name, authority] = process.argv.slice(2);
const grpc = require(`${modules}/@grpc/grpc-js`);
const loader = require(`${modules}/@grpc/proto-loader`);
const fs = require("fs");

const loaded = loader.loadSync(proto, { keepCase: true, longs: Number, defaults: true });
const { GRPCInferenceService } = grpc.loadPackageDefinition(loaded).inference;
const credentials = authority
  ? grpc.credentials.createSsl(fs.readFileSync(authority))
  : grpc.credentials.createInsecure();
const client = new GRPCInferenceService(target, credentials, {
  "grpc.max_receive_message_length": -1,
  "grpc.keepalive_time_ms": 10000,
});
const soon = () => ({ deadline: Date.now() + 30000 });

function floats(numbers) {
  return Buffer.from(Float32Array.from(numbers).buffer);
}

function text(value) {
  const bytes = Buffer.from(value);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(bytes.length);
  return Buffer.concat([length, bytes]);
}

function request(model, tensor, datatype, shape, raw, more = {}) {
  const inputs = tensor ? [{ name: tensor, datatype, shape }] : [];
  return { model_name: model, inputs, raw_input_contents: raw ? [raw] : [], ...more };
}

const echo = (numbers, more) => request("echo", "NUMBERS_IN", "FP32", [1, numbers.length], floats(numbers), more);
const counts = (count, more) => {
  const raw = Buffer.alloc(4);
  raw.writeInt32LE(count);
  return request("counts", "COUNT", "INT32", [1], raw, more);
};
const slow = (id) => request("slow", "SECONDS", "FP32", [1], floats([60]), { id });

function infer(message, metadata = new grpc.Metadata(), options = soon()) {
  return new Promise((resolve) => {
    client.ModelInfer(message, metadata, options, (error, response) => {
      if (error) resolve({ code: error.code, details: error.details });
      else resolve({ id: response.id, raw: response.raw_output_contents.map((raw) => raw.toString("base64")) });
    });
  });
}

function stream(begin, onResponse) {
  return new Promise((resolve) => {
    const found = { responses: [] };
    const call = client.ModelStreamInfer(new grpc.Metadata(), soon());
    call.on("metadata", () => { found.metadata = true; });
    call.on("data", (message) => {
      const response = message.infer_response;
      found.responses.push({
        error: message.error_message,
        id: response.id,
        numbers: response.raw_output_contents.map((raw) => raw.readInt32LE()),
      });
      if (onResponse) onResponse(call, found);
    });
    call.on("error", () => {});
    call.on("status", (status) => resolve({ ...found, code: status.code, details: status.details }));
    begin(call);
  });
}

const calls = {
  async unary() {
    const metadata = new grpc.Metadata();
    metadata.set("x-tenant", "blue");
    return infer(echo([1.5, -2], { id: "mine" }), metadata);
  },
  async large() {
    const numbers = new Float32Array(2_000_000).map((_, index) => index);
    const found = await infer(echo(numbers));
    return { same: floats(numbers).equals(Buffer.from(found.raw[0], "base64")) };
  },
  async beside() {
    const answers = await Promise.all([...Array(30).keys()].map((number) => infer(echo([number]))));
    return answers.map((answer) => Buffer.from(answer.raw[0], "base64").readFloatLE());
  },
  async failures() {
    const code = (word) => request("fails", "CODE", "BYTES", [1], text(word));
    return Promise.all([infer(request("fäils")), infer(code("UNAVAILABLE")), infer(code("raise"))]);
  },
  async bidi() {  // each request is sent when the one before is answered
    return stream(
      (call) => call.write(counts(2, { id: "first" })),
      (call, found) => {
        if (found.responses.length === 2) call.write(request("nope", null, null, null, null, { id: "second" }));
        if (found.responses.length === 3) {
          call.write(counts(1, { id: "third" }));
          call.end();
        }
      },
    );
  },
  async cancel() {
    return stream((call) => call.write(counts(4012)), (call) => call.cancel());
  },
  async deadline() {
    return infer(slow(`js-${process.pid}`), new grpc.Metadata(), { deadline: Date.now() + 1500 });
  },
  async gzip() {  // the answer is compressed if the server can
    const metadata = new grpc.Metadata();
    const numbers = Array(1000).fill(1);
    const packing = new GRPCInferenceService(target, credentials, { "grpc.default_compression_algorithm": 2 });
    return new Promise((resolve) => {
      packing.ModelInfer(echo(numbers), metadata, soon(), (error, response) => {
        const same = !error && response.raw_output_contents[0].equals(floats(numbers));
        packing.close();
        resolve({ same, details: error ? error.details : "" });
      });
    });
  },
};

calls[name]().then((found) => {
  client.close();
  console.log(JSON.stringify(found));
});
