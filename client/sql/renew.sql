UPDATE calls SET until = ? WHERE driver = ?;
