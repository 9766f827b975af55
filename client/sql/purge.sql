DELETE FROM calls WHERE forget_at <= ? AND driver = '';
