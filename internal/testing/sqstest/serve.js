// Runs fauxqs from the directory given as argument on a free port, which it prints,
// and ends when its standard input does: that is when the test process is gone,
// however that ended.
const { join } = require('node:path')
const { pathToFileURL } = require('node:url')

const app = pathToFileURL(join(process.argv[2], 'node_modules', 'fauxqs', 'dist', 'app.js'))
import(app).then(async ({ buildApp }) => {
  const server = buildApp({ logger: false })
  server.server.keepAliveTimeout = 60 * 60 * 1000
  await server.listen({ port: 0, host: '127.0.0.1' })
  console.log(server.server.address().port)
})
process.stdin.on('close', () => process.exit(0)).resume()
