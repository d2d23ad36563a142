// Runs dynalite from the directory given as argument on a free port, which it
// prints, and ends when its standard input does: that is when the test process is
// gone, however that ended.
const { createRequire } = require('node:module')
const { join } = require('node:path')

const dynalite = createRequire(join(process.argv[2], 'package.json'))('dynalite')
const server = dynalite({ createTableMs: 20, deleteTableMs: 0, updateTableMs: 0 })
server.keepAliveTimeout = 60 * 60 * 1000
server.listen(0, '127.0.0.1', () => console.log(server.address().port))
process.stdin.on('close', () => process.exit(0)).resume()
