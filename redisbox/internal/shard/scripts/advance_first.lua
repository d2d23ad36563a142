-- Due events happen before the operation.

if not engine.advance() then
  return engine.again()
end
