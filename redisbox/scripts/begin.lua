-- What fell due happens first.

if not engine.advance() then
  return engine.again()
end
